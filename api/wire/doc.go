// Package wire holds the JSON bodies of the REST API, as the specification
// spells them, and reads the ones that clients send.
//
// A body is a plain struct. Its tags give a field's name (json), its default
// (default, or required), its bounds (min, max, minlen, maxlen, maxitems,
// pattern, enum) and its meaning (doc). Decode and DecodeQuery hold a request
// against these tags and name all its faults at once; SchemaOf makes the
// OpenAPI schema from the same tags, so the document cannot differ from what is
// enforced.
//
// Nothing here knows HTTP, the state or who asks. Answers are allow-lists:
// clients get fields of the structs here, and nothing else is sent.
package wire
