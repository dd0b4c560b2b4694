// Package prepare gives an attempt all that its code needs of the machine, from its
// assignment to the supervisor that starts it: the interpreter, packages and
// environments, a network, scratch space, volumes and buckets, images of
// containers, and the spec that has all of it as data. It keeps some of that ready
// ahead, so that code starts sooner.
//
// It is not for an attempt that has started, which package executor follows. Its
// rules: nothing of the user's is executed here; whatever is taken is given back
// when the preparation fails; and it asks again whether the attempt may still start
// after everything that takes long.
//
// Preparer.Prepare is the way of one attempt, in the order in which things happen.
// Each thing that it needs is a type of its own.
package prepare
