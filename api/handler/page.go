package handler

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
)

// Paged returns the page of a list that the request asks for, in the order of place, which
// names a row. The cursor is the place of the last row, so that rows which come and go
// between pages neither hide nor repeat others.
func Paged[T any](r *edge.Request, rows []T, place func(*T) string) ([]T, error) {
	in := r.Query.(*wire.PageQuery)
	slices.SortFunc(rows, func(a, b T) int { return strings.Compare(place(&a), place(&b)) })
	if in.Cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(in.Cursor)
		if err != nil {
			f := new(wire.Faults)
			f.Value("not a cursor: begin again without one", "query", "cursor")
			return nil, f
		}
		at, found := slices.BinarySearchFunc(rows, string(last), func(row T, last string) int {
			return strings.Compare(place(&row), last)
		})
		if found {
			at++
		}
		rows = rows[at:]
	}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		r.SetHeader("X-Next-Cursor", base64.RawURLEncoding.EncodeToString([]byte(place(&rows[in.Limit-1]))))
	}
	return rows, nil
}

// ByTime returns the place of a row by its time, and then by its identifier.
func ByTime(at compute.Instant, id fmt.Stringer) string { return fmt.Sprintf("%019d %s", at, id) }
