package cluster

import (
	"net"
	"strconv"

	"berth/compute"
)

// joinPort returns host:port.
func joinPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// AdvertisedHost returns the host under which others reach a listener on ip: the
// configured one, ip itself, or the first address of the machine when ip means all
// of them.
func AdvertisedHost(configured string, ip net.IP) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if !ip.IsUnspecified() {
		return ip.String(), nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", compute.Errorf(compute.CodeInvalid,
			"The machine's addresses cannot be read (%w): set the one to advertise.", err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", compute.Errorf(compute.CodeInvalid,
		"The machine has no address that others could reach: set the one to advertise.")
}
