package cli

import (
	"github.com/spf13/cobra"

	"berth/compute"
)

// Must panics on an error that only a mistake of this program can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// shownID is how much of the end of an identifier a terminal shows.
const shownID = 12

// ShortID returns the identifier, or on a terminal its end.
func ShortID(cmd *cobra.Command, id compute.ExecutionID) string {
	text := id.String()
	if IsTerminal(cmd.OutOrStdout()) {
		return text[len(text)-shownID:]
	}
	return text
}
