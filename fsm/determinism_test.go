package fsm_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// impure returns the packages that the state may not use, and the names in
// other packages that it may not use: each can differ between replicas.
func impure() (packages []string, names map[string][]string) {
	packages = []string{
		"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "runtime", "log", "log/slog",
		"math/big", "unsafe", "os/exec", "testing", "text/template", "reflect",
	}
	names = map[string][]string{
		"time": {
			"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick",
			"Sleep", "Local", "LoadLocation",
		},
		"maps":    {"Keys", "Values", "All", "Collect"},
		"context": {"Background", "TODO"},
	}
	return packages, names
}

// outside reports whether a file is exempt: the interface to Raft and to
// readers, metrics, and the reading of snapshots, whose result does not depend
// on the order in which records are read.
func outside(file string) bool {
	return strings.HasSuffix(file, "fsm.go") || strings.HasSuffix(file, "metrics.go") || strings.HasSuffix(file, "restore.go")
}

// pure returns the directories of the packages that decide and, for imports
// that are forbidden elsewhere, those that each may use: schemas of records
// follow from their types, which are fixed in the program.
func pure() map[string][]string {
	return map[string][]string{
		".": nil, "../attempt": nil, "archive": nil, "charge": nil, "command": nil, "format": nil, "ledger": nil, "partial": nil,
		"store": {"reflect", "unsafe"},
	}
}

// judge returns the constructs in files that could make replicas differ. A
// range over a map must say on its line why its order does not matter: "Any
// order" or "Sorted".
func judge(fset *token.FileSet, files []*ast.File, may []string) []string {
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	_, _ = imports{}.config().Check("fsm", fset, files, info) // Other imports are missing; maps are recognized anyway.
	var out []string
	for _, file := range files {
		at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
		marked := markedLines(fset, file)
		packages, names := impure()
		for _, imp := range file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if slices.Contains(packages, path) && !slices.Contains(may, path) {
				out = append(out, at(imp)+": imports "+path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(names[x.Name], n.Sel.Name) &&
					!marked[fset.Position(n.Pos()).Line] {
					out = append(out, fmt.Sprintf("%s: uses %s.%s", at(n), x.Name, n.Sel.Name))
				}
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
				if !outside(fset.Position(n.Pos()).Filename) {
					out = append(out, at(n)+": depends on scheduling")
				}
			case *ast.Ident:
				if strings.HasPrefix(n.Name, "float") && !outside(fset.Position(n.Pos()).Filename) {
					out = append(out, at(n)+": uses "+n.Name)
				}
			case *ast.RangeStmt:
				_, isMap := typeOf(info, n.X).(*types.Map)
				if isMap && !marked[fset.Position(n.Pos()).Line] {
					out = append(out, at(n)+": ranges over a map")
				}
			}
			return true
		})
	}
	return out
}

func typeOf(info *types.Info, x ast.Expr) types.Type {
	if t := info.Types[x].Type; t != nil {
		return t.Underlying()
	}
	return nil
}

// markedLines returns the lines with a comment that says why an order does not
// matter.
func markedLines(fset *token.FileSet, file *ast.File) map[int]bool {
	marked := make(map[int]bool)
	for _, group := range file.Comments {
		for _, c := range group.List {
			text := strings.TrimPrefix(c.Text, "// ")
			if strings.HasPrefix(text, "Any order") || strings.HasPrefix(text, "Sorted") {
				marked[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return marked
}

// imports has the packages below this one and compute, whose fields may be maps. It resolves
// no others: the check needs only the types in these files.
type imports map[string]*types.Package

func (i imports) config() *types.Config { return &types.Config{Importer: i, Error: func(error) {}} }

// Import returns a package by its path.
func (i imports) Import(path string) (*types.Package, error) {
	dir, ok := strings.CutPrefix(path, "berth/")
	if !ok || i[path] != nil {
		return i[path], nil
	}
	fset := token.NewFileSet()
	files, err := parsed(fset, filepath.Join("..", dir))
	if err != nil {
		return nil, err
	}
	i[path], _ = i.config().Check(path, fset, files, nil)
	return i[path], nil
}

// parsed returns the files of a package, without tests.
func parsed(fset *token.FileSet, dir string) (files []*ast.File, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func TestNothingDependsOnTheReplica(t *testing.T) {
	for dir, may := range pure() { // Any order.
		fset := token.NewFileSet()
		files, err := parsed(fset, dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Fatalf("%s: only %d files were found", dir, len(files))
		}
		for _, fault := range judge(fset, files, may) {
			t.Error(fault)
		}
	}
}

// TestJudgeFindsImpurities checks that judge finds each impurity.
func TestJudgeFindsImpurities(t *testing.T) {
	tests := []struct{ name, source, want string }{
		{"clock", `import "time"; func f() { _ = time.Now() }`, "uses time.Now"},
		{"elapsed", `import "time"; func f(t time.Time) { _ = time.Since(t) }`, "uses time.Since"},
		{"time zone", `import "time"; var zone = time.Local`, "uses time.Local"},
		{"random", `import "math/rand/v2"; var _ = rand.Int()`, "imports math/rand/v2"},
		{"random bytes", `import "crypto/rand"`, "imports crypto/rand"},
		{"environment", `import "os"; var _ = os.Getenv("X")`, "imports os"},
		{"goroutine", `func f() { go f() }`, "depends on scheduling"},
		{"select", `func f(c chan int) { select { case <-c: default: } }`, "depends on scheduling"},
		{"float", `var x float64`, "uses float64"},
		{"map", `func f(m map[string]int) { for range m { } }`, "ranges over a map"},
		{"map of a field", `type s struct { m map[string]int }; func f(x s) { for range x.m { } }`, "ranges over a map"},
		{"named map", `type s map[string]int; func f(m s) { for k := range m { _ = k } }`, "ranges over a map"},
		{"map of imported types", `import "berth/compute"
			func f(m map[compute.ID]compute.X) { for range m { } }`, "ranges over a map"},
		{"map of an imported struct", `import "berth/fsm/command"
			func f(c command.Bootstrap) { for range c.Prices { } }`, "ranges over a map"},
		{"keys of a map", `import "maps"; func f(m map[string]int) { _ = maps.Keys(m) }`, "uses maps.Keys"},
		{"slice", `func f(m []int) { for range m { } }`, ""},
		{"marked map", "func f(m map[string]int) {\n for range m { // Any order: it adds up.\n } }", ""},
		{"duration", `import "time"; const d = time.Second`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x.go", "package fsm\n"+test.source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(judge(fset, []*ast.File{file}, nil), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("judged %q, want %q", got, test.want)
			}
		})
	}
}
