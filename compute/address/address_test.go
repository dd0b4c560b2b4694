package address_test

import (
	"net/netip"
	"slices"
	"testing"

	"berth/compute/address"
)

func TestSpecial(t *testing.T) {
	special := func(text string) bool {
		return slices.ContainsFunc(address.Special(), func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(text)) })
	}
	for _, text := range []string{
		"0.0.0.0", "10.255.255.255", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.31.255.255", "192.0.0.192",
		"192.168.1.1", "198.19.255.255", "224.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "64:ff9b::7f00:1", "2001::1", "2002:7f00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
	} {
		if !special(text) {
			t.Errorf("%s may be connected to", text)
		}
	}
	for _, text := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "172.15.255.255", "172.32.0.0",
		"192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "2400:cb00::1",
	} {
		if special(text) {
			t.Errorf("%s may not be connected to", text)
		}
	}
}
