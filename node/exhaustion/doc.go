// Package exhaustion tests how much memory attackers can make real nodes hold, and
// whether the nodes still answer others meanwhile.
//
// It has tests only, in the long form: a cluster of node processes on loopback, and
// a bounded attack for each class of exhaustion in docs/security.md. It measures
// processes from outside; what bounds a class is tested where it is implemented.
package exhaustion
