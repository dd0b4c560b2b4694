package edge

import (
	"iter"
	"strings"

	"berth/compute"
)

// AnyTag reports whether a condition holds for each thing that there is.
func AnyTag(header string) bool { return strings.TrimSpace(header) == "*" }

// Tags yields the ETags that a condition lists, without quotes, and whether each is weak.
// Clients of S3 leave out the quotes, so that those without pass too.
func Tags(header string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for rest := strings.TrimLeft(header, " \t,"); rest != ""; rest = strings.TrimLeft(rest, " \t,") {
			inner, weak := strings.CutPrefix(rest, "W/")
			var tag string
			if quoted, is := strings.CutPrefix(inner, `"`); is {
				tag, rest, _ = strings.Cut(quoted, `"`)
			} else {
				tag, rest, _ = strings.Cut(inner, ",")
				tag = strings.TrimRight(tag, " \t")
			}
			if !yield(tag, weak) {
				return
			}
		}
	}
}

// NamesTag reports whether a condition lists an ETag, which is a strong one. Weak ones in the list
// equal it only where weak allows it.
func NamesTag(header, tag string, weak bool) bool {
	for one, isWeak := range Tags(header) {
		if one == tag && (weak || !isWeak) {
			return true
		}
	}
	return false
}

// ErrPrecondition refuses a request whose If-Match or If-None-Match does not hold.
func ErrPrecondition() error {
	return compute.Errorf(compute.CodeConflict,
		"The file is another one than the conditions of the request allow.").Named(preconditionFailed)
}

// preconditionFailed is the case of a condition in the header that does not hold: its
// status is that of HTTP.
const preconditionFailed = "precondition_failed"

// CheckTag compares the request's conditions with the ETag of the file that it reads. Same says
// that the client has it already.
func (r *Request) CheckTag(tag string) (same bool, err error) {
	if r.IfMatch != "" && !AnyTag(r.IfMatch) && !NamesTag(r.IfMatch, tag, false) {
		return false, ErrPrecondition()
	}
	if r.ifRange != "" && r.ifRange != `"`+tag+`"` {
		r.byteRange = "" // The part that the client has is of another one.
	}
	return AnyTag(r.IfNoneMatch) || NamesTag(r.IfNoneMatch, tag, true), nil
}
