// Command bare does nothing. It measures the cost of starting a Go program.
package main

func main() {}
