#include <farad/worker.h>

int add(int a, int b) { return a + b; }
int refused(farad::Worker& worker) { return worker.rpc_sync<add>("worker1", 1); }
