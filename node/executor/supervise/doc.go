// Package supervise is the supervisor process of an attempt. The supervisor owns
// the attempt's cgroup, timers, output and journal, and it outlives the node
// process that started it. Only the supervisor kills the code. It has one attempt at
// a time, and may wait for another one when that has ended.
//
// The node hands it attempts over one socket (Process), and sends it commands over another, which
// belongs to the attempt (Conn): when the leader was last
// reached, and how to stop. The supervisor answers when the code started and when
// the attempt ended. The journal records the same durably. Timers use
// CLOCK_BOOTTIME, which keeps running while the machine is suspended.
//
// The package decides how an attempt ended and nothing else. It imports only the
// standard library and light packages of Berth, because package early calls it
// before the rest of the binary initialises.
package supervise
