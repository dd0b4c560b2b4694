package cli

import (
	"fmt"
	"strings"
)

// minSuffix is the length of the shortest end of an identifier that names it.
const minSuffix = 4

// maxShown is how many candidates an error lists.
const maxShown = 5

// Unique returns the item that arg names: by its identifier, which is the first of
// names, by another of its names, or by the end of its identifier.
func Unique[T any](what, arg string, items []T, names func(T) []string) (T, error) {
	var none T
	var exact, ending []T
	for _, item := range items {
		for i, name := range names(item) {
			switch {
			case name == arg && i == 0:
				return item, nil
			case name == arg && arg != "":
				exact = append(exact, item)
			case i == 0 && len(arg) >= minSuffix && strings.HasSuffix(name, strings.ToLower(arg)):
				ending = append(ending, item)
			}
		}
	}
	found := exact
	if len(found) == 0 {
		found = ending
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return none, UsageErrorf("no %s %q", what, arg)
	}
	var ids []string
	for _, item := range found[:min(len(found), maxShown)] {
		ids = append(ids, names(item)[0])
	}
	return none, UsageErrorf("%s", fmt.Sprintf("%q names %d of them: give more of the identifier: %s",
		arg, len(found), strings.Join(ids, ", ")))
}
