// Package execution has the commands that start executions and end them: berth run, service,
// deploy and gpu recommend, abort, stop and rm.
//
// Each command has its own file. Commands share how code, images, space and hardware are given
// (program.go, image.go, space.go, run.go), and how the candidates of a GPU selection are shown
// (selection.go, selection_view.go). Package source sends directories, and package inspect
// follows what was started.
package execution
