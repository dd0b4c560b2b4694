package prepare

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/compute"
)

// procRoot is the mount point of procfs.
const procRoot = "/proc"

// migDevices returns the capability devices of a MIG slice: one for its GPU
// instance and one for its compute instance. The driver grants access to the slice
// through them. Their numbers are in proc (NVIDIA MIG user guide, "Device Nodes and
// Capabilities"). A device without a number is omitted, so that the code finds no
// device instead of another slice's.
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
