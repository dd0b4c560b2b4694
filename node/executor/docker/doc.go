// Package docker executes the code of attempts in containers of a Docker engine. It
// has two sides. The node's, Engine, pulls images and keeps them within a size limit,
// makes networks and removes what killed supervisors left. The supervisor's, Open,
// makes the container of one attempt as a supervise.Box, so that leases, time
// limits, output and outcomes are those of every other attempt.
//
// A request to create a container is built here from an allow list, never copied from
// a user's text. The container has no capabilities, gains no privileges, and has a
// seccomp profile and a read-only root. It has limits on memory, processors and
// processes, and a network with the deny list of sandboxes. Access to the engine is
// root on the machine: only this package talks to it, and nothing of it is ever
// mounted into a container.
//
// Supervisors of sandboxes must not import it: the engine's client is large.
package docker
