// Package answer has the answers of handlers that are more than a value: texts (json.go),
// lists and files that are made while the client reads them (list.go, file.go) and
// events (events.go). A handler returns one, and package edge sends it.
//
// It is not for requests, and knows no server: status and headers are set by edge.
//
// Rules. However long an answer is, a node holds a piece of it. A client takes each piece
// in time, and an answer that ends early is never taken for a whole one.
package answer
