// Package partial decodes parts of encoded executions and attempts: what indexes, filters and
// checks need, in a small part of the time of a whole decode.
//
// It is not for records of other types, or for decoding whole ones, which package store does.
//
// Rule: what it decodes is what the whole decode yields for the same fields. A field that one
// of its readers needs is added here first.
package partial
