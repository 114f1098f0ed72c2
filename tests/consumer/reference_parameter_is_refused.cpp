#include <farad/worker.h>

void grow(int& value) { ++value; }
void refused(farad::Worker& worker, int value) { worker.rpc_sync<grow>("worker1", value); }
