// Package config reads the configuration of a node and checks it.
//
// One struct, Config, is the source of the keys of the file, the flags, the
// variables and their help. A flag overrides a variable, a variable the file,
// the file a default. Every problem is reported at once, each with its key and
// its line in the file.
//
// The package opens nothing and starts nothing. Package node turns a Config into
// the small configuration of each part; no part reads flags, variables or files
// by itself.
package config
