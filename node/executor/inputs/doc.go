// Package inputs reads from other nodes what an execution needs before it starts
// (its bundle, uploaded files and the variables of its user), and writes the files
// as one stream, which its sandbox unpacks.
//
// It is not for what a machine gives an execution, which is in package prepare.
// Its rules: names of files are checked here again, because they become paths;
// a read is repeated for a minute; variables are in no file on a disk.
package inputs
