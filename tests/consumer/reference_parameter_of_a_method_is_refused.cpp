#include <farad/rref.h>

void move_to(int& object, int& other) { other = object; }
void refused(const farad::RRef<int>& object, int value) { object.rpc_sync<move_to>(value); }
