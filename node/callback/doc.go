// Package callback sends the notifications that executions asked for.
//
// When an execution ends, the state records a callback for each of its URLs. The leader
// sends those that are due and has the state keep what became of each try
// (Sender.Lead). A new leader goes on from the state: a try that was not recorded is made
// again with the same webhook-id, so receivers get each callback at least once.
//
// Rules:
//
//   - URLs come from users. Connections go to public addresses only, which is checked for
//     the address that is connected to, not for the name. No redirect is followed, and no
//     proxy is used.
//   - Hosts are independent: each has few connections, and one that keeps failing is left
//     alone for a while, so it delays no other.
//   - Organizations share the places for tries: none can hold all of them.
//   - What an organization has a secret for is signed, or not sent.
//   - Everything is bounded: tries in flight, answers that are read, time.
package callback
