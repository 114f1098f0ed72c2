#include <farad/worker.h>

int pointed_at(int* value) { return *value; }
int refused(farad::Worker& worker, int value) { return worker.rpc_sync<pointed_at>("worker1", &value); }
