// A driver's library of two GPUs, whose state a test sets: tests/perf/gpu_load_test.cpp.
#include <string.h>

static unsigned clock_mhz = 1980, milliwatts = 300000, celsius = 40, process_count = 0;
static unsigned pids[8];
static unsigned long long reasons = 0;
static int gpus[2];
int fake_nvml_open = 0, fake_nvml_reads = 0;

void fake_nvml_set(unsigned mhz, unsigned long long why, unsigned count, const unsigned* ids) {
  clock_mhz = mhz;
  reasons = why;
  process_count = count;
  for (unsigned i = 0; i < count && i < 8; ++i) pids[i] = ids[i];
}

int nvmlInit_v2(void) { return fake_nvml_open++, 0; }
int nvmlShutdown(void) { return fake_nvml_open--, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** gpu) { return *gpu = &gpus[i], 0; }

struct Pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void* gpu, struct Pci* pci) {
  strcpy(pci->bus_id, gpu == &gpus[0] ? "00000000:18:00.0" : "00000000:AF:00.0");
  return 0;
}
int nvmlDeviceGetClockInfo(void* gpu, unsigned which, unsigned* mhz) {
  ++fake_nvml_reads;
  return *mhz = gpu == &gpus[0] ? 210 : clock_mhz, which == 1 ? 0 : 2;
}
int nvmlDeviceGetMaxClockInfo(void* gpu, unsigned which, unsigned* mhz) {
  (void)gpu;
  return *mhz = 1980, which == 1 ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* power) { return (void)gpu, *power = milliwatts, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* power) { return (void)gpu, *power = 700000, 0; }
int nvmlDeviceGetTemperature(void* gpu, unsigned sensor, unsigned* c) {
  return (void)gpu, (void)sensor, *c = celsius, 0;
}
// Under its older name, as drivers before 535 have it.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* why) {
  return (void)gpu, *why = reasons, 0;
}

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, struct Process* found) {
  (void)gpu;
  if (*count < process_count) return 7;
  *count = process_count;
  for (unsigned i = 0; i < process_count; ++i) found[i].pid = pids[i];
  return 0;
}
