// Package slot numbers the attempts of one machine. A slot is a number that belongs to
// one attempt at a time among all nodes of the machine; the attempt's user ids and
// network addresses derive from it. A file lock holds it.
//
// The kernel keeps connections that nobody closed for up to five days. A slot whose
// attempt had a network is therefore marked, in its file. The connections of a marked
// slot are removed before another attempt gets its address. To find them, the kernel
// walks the table of all connections of the machine, which took 20 ms of processor time.
// So slots with a network are taken in turn, and one walk serves many of them.
package slot
