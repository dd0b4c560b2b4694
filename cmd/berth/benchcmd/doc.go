// Package benchcmd has the commands of berth bench, which measure Berth and
// test it under faults.
//
// Each command has its own file: it reads flags, calls one package below bench
// and prints the report, as tables or as JSON. Nothing is measured here.
package benchcmd
