// Package wire holds the JSON bodies of the REST API, as the specification
// spells them, and reads the ones that clients send.
//
// A body is a plain struct. Its tags say what a field is called (json), what
// it is when absent (default, or required), its bounds (min, max, minlen,
// maxlen, maxitems, pattern, enum) and what it means (doc). Decode and
// DecodeQuery hold a request against these tags and name all its faults at
// once; SchemaOf makes the OpenAPI schema from the same tags, so the document
// cannot differ from what is enforced.
//
// Nothing here knows HTTP, the state or who asks. Answers are allow-lists:
// what a client may read is a field of a struct here, and nothing else is sent.
package wire
