//go:build supervisor && !faults

package program

import _ "embed" // The program.

//go:embed berth-supervisor
var file []byte

func embedded() []byte { return file }
