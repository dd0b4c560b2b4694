// Package handler has what the handlers of the REST API share: the Core that each
// group embeds, its Config with the parts of the node that handlers use, and lookups,
// pages and errors.
//
// It is not for endpoints, which are in the packages of their groups beside it, nor
// for requests on their way to a handler, which package edge takes care of.
//
// Rules. It imports no group. Something is here only if several groups use it. A type
// that the node has to provide is an interface or a function in Config, in the words
// of compute.
package handler
