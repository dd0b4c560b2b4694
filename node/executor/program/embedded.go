//go:build supervisor

package program

import _ "embed" // The program.

//go:embed berth-supervisor
var file []byte

func embedded() []byte { return file }
