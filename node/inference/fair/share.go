package fair

import "slices"

// Unknown is the demand of a router that has not reported it: the router may use its whole
// share.
const Unknown = int(^uint(0) >> 1)

// Share returns how many of all places one router may use, given how many requests each
// of the others has. The others get as many places as they need, up to an equal share, and
// this one gets the rest. It is at least 1. Routers with the same figures never use more
// than all places, but for that.
func Share(places int, others []int) int {
	others = slices.Sorted(slices.Values(others))
	left, routers := places, len(others)+1
	for _, demand := range others {
		if demand > left/routers {
			break
		}
		left -= demand
		routers--
	}
	return max((left+routers-1)/routers, 1)
}
