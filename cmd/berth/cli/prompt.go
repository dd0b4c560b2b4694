package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxSecret is the size of the largest secret that is read.
const maxSecret = 4096

// Secret says how a secret comes from the user.
type Secret struct {
	Prompt string // Such as "Password".
	File   string // Read in place of asking; "-" for standard input.
	Flag   string // The flag that names File.
	Twice  bool   // Ask again, against typing errors.
}

// Read returns the secret from its file, or from the terminal without showing it.
func (s Secret) Read(cmd *cobra.Command) (string, error) {
	switch {
	case s.File == "-":
		text, err := ReadLimited(cmd.InOrStdin(), "standard input", maxSecret)
		return strings.TrimRight(text, "\r\n"), err
	case s.File != "":
		text, err := ReadFile(s.File, maxSecret)
		return strings.TrimRight(text, "\r\n"), err
	case !CanAsk():
		return "", UsageErrorf("no terminal to ask for the %s on: use --%s", strings.ToLower(s.Prompt), s.Flag)
	}
	typed, err := ask(cmd, s.Prompt+": ")
	if err != nil || !s.Twice {
		return typed, err
	}
	again, err := ask(cmd, "Again: ")
	if err == nil && typed != again {
		err = UsageErrorf("the two entries differ")
	}
	return typed, err
}

// CanAsk reports whether standard input is a terminal.
func CanAsk() bool { return term.IsTerminal(int(os.Stdin.Fd())) }

// ask asks for a text on the terminal, without showing it.
func ask(cmd *cobra.Command, prompt string) (string, error) {
	fmt.Fprint(cmd.ErrOrStderr(), prompt)
	typed, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return "", fmt.Errorf("read from the terminal: %w", err)
	}
	return string(typed), nil
}

// AskLine asks for a line on the terminal. flag names what to use without one.
func AskLine(cmd *cobra.Command, prompt, flag string) (string, error) {
	if !CanAsk() {
		return "", UsageErrorf("--%s is needed; see %s --help", flag, cmd.CommandPath())
	}
	fmt.Fprint(cmd.ErrOrStderr(), prompt+": ")
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return "", UsageErrorf("no %s given (%v)", strings.ToLower(prompt), err)
	}
	return line, nil
}
