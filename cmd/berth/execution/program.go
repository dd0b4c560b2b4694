package execution

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/source"
	"berth/compute"
)

// programUse is the usage of commands that send code.
const programUse = "{FILE | - | -c CODE | -m MODULE} [-- ARG...] | -- COMMAND [ARG...]"

// programHelp is the part of their help about it.
const programHelp = `Words behind -- are the arguments of the code. Without a file, -c and -m it is a
command, executed without a shell: berth run --gpu a100 -- ./run.sh x

--dir sends a directory, in which the code then works: a file of it is executed where
it is, and -m and commands find theirs. What .gitignore and .berthignore name stays
here, and so do .git, .berth and links that leave it. Only what the cluster does not
have yet is sent. Files that the code puts into outputs/ are kept for 30 days: see
berth outputs.

When standard input is a pipe or a file, up to 1 MiB of it is the code's standard
input (</dev/null gives none).
`

// inputPatience is how long standard input is read without a word.
const inputPatience = 2 * time.Second

// programArgs checks the arguments of a command that sends code.
func programArgs(cmd *cobra.Command, args []string) error {
	if before, _ := splitArgs(cmd, args); len(before) > 1 {
		return fmt.Errorf("accepts one file, received %d arguments: those of the code follow --, as in %s %s -- %s",
			len(before), cmd.CommandPath(), before[0], before[1])
	}
	return nil
}

// splitArgs returns the arguments before and after --.
func splitArgs(cmd *cobra.Command, args []string) (before, after []string) {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		return args[:dash], args[dash:]
	}
	return args, nil
}

// program fills in what start executes, with its arguments and its input. It
// returns the files to send before; nil for none.
func (f *codeFlags) program(cmd *cobra.Command, args []string, start *client.Start) (*source.Tree, error) {
	before, after := splitArgs(cmd, args)
	given := len(before)
	for _, name := range []string{"code", "module"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	tree, err := f.tree(cmd)
	switch {
	case f.compose && (given > 0 || len(after) > 0 || tree != nil):
		return nil, cli.UsageErrorf("--compose cannot be combined with a file, --dir or arguments")
	case f.compose:
		return nil, err
	case f.image && given > 0:
		return nil, cli.UsageErrorf("--image can be combined with -- ARG... only")
	case f.image && err == nil:
		start.Command = after
		return tree, nil
	case given > 1, given == 0 && len(after) == 0:
		return nil, cli.UsageErrorf("want one of a file, -c CODE, -m MODULE and -- COMMAND; see %s --help", cmd.CommandPath())
	case err != nil:
		return nil, err
	case given == 0:
		start.Command = after
		if tree, err = f.command(cmd, tree, after[0]); err != nil {
			return nil, err
		}
	case cmd.Flags().Changed("module"):
		if f.module == "" {
			return nil, cli.UsageErrorf("-m: the name of the module is empty")
		}
		start.Module, start.Args = f.module, after
	case cmd.Flags().Changed("code"):
		start.Code, start.Args = f.code, after
	default:
		start.Args = after
		return tree, f.file(cmd, before[0], tree, start)
	}
	return tree, f.input(cmd, start)
}

// tree reads the directory of --dir, nil without one.
func (f *codeFlags) tree(cmd *cobra.Command) (*source.Tree, error) {
	if f.dir == "" {
		return nil, nil
	}
	tree, err := source.Scan(cmd.Context(), f.dir)
	if err != nil {
		return nil, cli.UsageErrorf("--dir: %w", err)
	}
	for i, warning := range tree.Warnings {
		if i == maxWarnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: and %d more\n", len(tree.Warnings)-i)
			break
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "berth:", warning)
	}
	return tree, nil
}

// maxWarnings is how many of the files that are left out are named.
const maxWarnings = 20

// command returns the tree of --dir, or the program of a command alone if that is
// a file of this directory.
func (f *codeFlags) command(cmd *cobra.Command, tree *source.Tree, program string) (*source.Tree, error) {
	local := filepath.IsLocal(program) && strings.Contains(program, "/")
	if tree != nil || !local {
		return tree, nil
	}
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() {
		return nil, cli.UsageErrorf(
			"%s is not a file here: a program of the node is named without a path, as in -- python3 x.py", program)
	}
	tree, err := source.ScanFiles(cmd.Context(), ".", filepath.Clean(program))
	if err != nil {
		return nil, cli.UsageErrorf("%w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: only %s is sent; --dir . sends the directory\n", program)
	return tree, nil
}

// file fills in the code of a file, of standard input, or the path of a script in
// the directory that is sent.
func (f *codeFlags) file(cmd *cobra.Command, name string, tree *source.Tree, start *client.Start) (err error) {
	if name == "-" {
		start.Code, err = cli.ReadLimited(cmd.InOrStdin(), "standard input", maxCodeBytes)
		return err
	}
	if tree != nil {
		if start.Script, err = f.script(name, tree); err != nil {
			return err
		}
		return f.input(cmd, start)
	}
	start.FileName = filepath.Base(name)
	if start.Code, err = cli.ReadFile(name, maxCodeBytes); err != nil {
		return err
	}
	return f.input(cmd, start)
}

// script returns the path of a file in the directory of --dir.
func (f *codeFlags) script(name string, tree *source.Tree) (string, error) {
	root, err := filepath.Abs(f.dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return "", cli.UsageErrorf("--dir: %w", err)
	}
	if _, err := os.Stat(name); err != nil {
		return "", cli.UsageErrorf("%w", err)
	}
	file, err := filepath.Abs(name)
	if err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		return "", cli.UsageErrorf("%w", err)
	}
	below, err := filepath.Rel(root, file)
	if err != nil || !filepath.IsLocal(below) {
		return "", cli.UsageErrorf("%s is not in the directory of --dir, %s", name, f.dir)
	}
	below = filepath.ToSlash(below)
	if !tree.Has(below) {
		return "", cli.UsageErrorf("%s is left out of --dir by .gitignore or .berthignore", name)
	}
	return below, nil
}

// sendTree sends the files of a tree, if there is one, and returns the id of the
// bundle.
func sendTree(cmd *cobra.Command, c *client.Client, tree *source.Tree) (string, error) {
	if tree == nil {
		return "", nil
	}
	bar := cli.NewBar(cmd.ErrOrStderr(), "sending")
	bundle, err := tree.Send(cmd.Context(), c, bar.Total, bar.Add)
	bar.Close()
	if err != nil {
		return "", err
	}
	return bundle.BundleID.String(), nil
}

// input fills in the standard input of the code.
func (f *codeFlags) input(cmd *cobra.Command, start *client.Start) error {
	in := cmd.InOrStdin()
	if !piped(in) {
		return nil
	}
	told := time.AfterFunc(inputPatience, func() {
		fmt.Fprintln(cmd.ErrOrStderr(), "berth: reading standard input to its end (</dev/null gives the code none)")
	})
	data, err := io.ReadAll(io.LimitReader(in, compute.MaxStdin+1))
	told.Stop()
	switch {
	case err != nil:
		return cli.UsageErrorf("read standard input: %w", err)
	case len(data) > compute.MaxStdin:
		return cli.UsageErrorf("standard input is larger than 1 MiB (%d bytes): "+
			"put it into a file and send that with --dir, or give the code none with </dev/null", compute.MaxStdin)
	case utf8.Valid(data):
		start.Stdin = string(data)
	default:
		start.StdinBase64 = base64.StdEncoding.EncodeToString(data)
	}
	return nil
}

// piped reports whether what is read is a pipe or a file, and no terminal or
// device.
func piped(in io.Reader) bool {
	file, is := in.(*os.File)
	if !is {
		return true
	}
	info, err := file.Stat()
	if errors.Is(err, os.ErrClosed) || err != nil {
		return false
	}
	return info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0
}
