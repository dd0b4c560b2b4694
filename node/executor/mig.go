package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/compute"
)

// procRoot is where the kernel tells of itself.
const procRoot = "/proc"

// migDevices returns the devices by which the driver knows who may use a MIG
// slice: one for its GPU instance and one for its compute instance. Their
// numbers are in proc (NVIDIA MIG user guide, "Device Nodes and
// Capabilities"). One without a number is left out: the code then finds no
// device, rather than somebody else's.
func migDevices(proc string, slice compute.GPU) []string {
	instance := filepath.Join(proc, "driver/nvidia/capabilities", fmt.Sprintf("gpu%d", slice.Index),
		"mig", fmt.Sprintf("gi%d", slice.Instance))
	var names []string
	for _, access := range []string{
		filepath.Join(instance, "access"),
		filepath.Join(instance, fmt.Sprintf("ci%d", slice.ComputeInstance), "access"),
	} {
		if minor, ok := capabilityMinor(access); ok {
			names = append(names, fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor))
		}
	}
	return names
}

// capabilityMinor returns the number in a line such as "DeviceFileMinor: 30".
func capabilityMinor(path string) (int, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "DeviceFileMinor" {
			continue
		}
		minor, err := strconv.Atoi(strings.TrimSpace(value))
		return minor, err == nil && minor >= 0
	}
	return 0, false
}
