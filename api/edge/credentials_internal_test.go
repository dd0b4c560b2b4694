package edge

import "testing"

// TestCustomersOfAnAddress counts strangers of one network of IPv6 together.
func TestCustomersOfAnAddress(t *testing.T) {
	of := func(ip string) string { return (&Request{IP: ip}).customer() }
	for _, same := range [][2]string{{"2001:db8::1", "2001:db8::ffff:1"}, {"::ffff:192.0.2.1", "192.0.2.1"}, {"n4 2001:db8::1", "n4 2001:db8::2"}} {
		if of(same[0]) != of(same[1]) {
			t.Errorf("%s is %q, and %s is %q", same[0], of(same[0]), same[1], of(same[1]))
		}
	}
	for _, other := range [][2]string{{"2001:db8::1", "2001:db8:0:1::1"}, {"192.0.2.1", "192.0.2.2"}, {"n4 192.0.2.1", "192.0.2.1"}} {
		if of(other[0]) == of(other[1]) {
			t.Errorf("%s and %s are both %q", other[0], other[1], of(other[0]))
		}
	}
}
