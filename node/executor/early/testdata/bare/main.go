// Command bare is what a Go program costs that does nothing.
package main

func main() {}
