// Package chart draws the results of the scheduler. It is the only part of a node
// that knows the plotting library, and decides nothing: package selection has judged
// the results. Everything here is a function of its arguments; the same result is
// drawn as the same bytes.
package chart
