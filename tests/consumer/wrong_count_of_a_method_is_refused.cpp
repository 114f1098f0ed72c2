#include <farad/rref.h>

int add(int& object, int b) { return object + b; }
int refused(const farad::RRef<int>& object) { return object.rpc_sync<add>(1, 2); }
