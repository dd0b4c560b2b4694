package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"berth/fault"
)

// uses holds the calls of this package in the source.
type uses struct {
	points map[string][]call
	bugs   map[string]int // By the name of the constant.
	called map[string]bool
}

// call is one call of Point or Error.
type call struct {
	at    token.Position
	fails bool
}

// source parses all Go files of the tree except tests.
func source(t *testing.T) uses {
	t.Helper()
	found := uses{make(map[string][]call), make(map[string]int), make(map[string]bool)}
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != ".." && (name[0] == '.' || name == "testdata" || path == "../fault"):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool { found.add(t, files, n); return true })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// add records a call of this package.
func (u uses) add(t *testing.T, files *token.FileSet, n ast.Node) {
	expression, ok := n.(*ast.CallExpr)
	if !ok {
		return
	}
	function, ok := expression.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if of, ok := function.X.(*ast.Ident); !ok || of.Name != "fault" {
		return
	}
	at := files.Position(n.Pos())
	u.called[function.Sel.Name] = true
	switch function.Sel.Name {
	case "Point", "Error":
		literal, ok := expression.Args[0].(*ast.BasicLit)
		if !ok {
			t.Errorf("%s: the name of a point is a literal", at)
			return
		}
		name, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		u.points[name] = append(u.points[name], call{at, function.Sel.Name == "Error"})
	case "Planted":
		bug, ok := expression.Args[0].(*ast.SelectorExpr)
		if !ok {
			t.Errorf("%s: a planted bug is a constant of package fault", at)
			return
		}
		u.bugs[bug.Sel.Name]++
	}
}

// TestPointsAreInTheSource compares the list with the calls: each point has one
// line, and each line one point.
func TestPointsAreInTheSource(t *testing.T) {
	found := source(t)
	listed := make(map[string]bool)
	form := regexp.MustCompile(`^[a-z]+(\.[a-z_]+)+$`)
	for _, p := range fault.Points() {
		calls := found.points[p.Name]
		switch {
		case listed[p.Name]:
			t.Errorf("%s is listed twice", p.Name)
		case !form.MatchString(p.Name) || p.What == "":
			t.Errorf("%s is no name, or has no description", p.Name)
		case len(calls) != 1:
			t.Errorf("%s is called %d times, want once: %v", p.Name, len(calls), calls)
		case calls[0].fails != p.Fails:
			t.Errorf("%s: fails is %v in the list and %v at %s", p.Name, p.Fails, calls[0].fails, calls[0].at)
		}
		listed[p.Name] = true
	}
	for name, calls := range found.points {
		if !listed[name] {
			t.Errorf("%s: the point %q is not in the list of fault/points.go", calls[0].at, name)
		}
	}
	for _, name := range []string{"Offset", "SnapshotEvery", "Environment", "Setup"} {
		if !found.called[name] {
			t.Errorf("nobody asks for %s: what it tells does nothing", name)
		}
	}
	if len(found.bugs) != len(fault.Plants()) {
		t.Errorf("%d bugs are planted in the source, %d are listed", len(found.bugs), len(fault.Plants()))
	}
	for _, p := range fault.Plants() {
		if p.Breaks == "" || p.CaughtBy == "" {
			t.Errorf("%s is not described", p.Bug)
		}
	}
}

// TestNothingWithoutTheTag checks with the compiler that, without the tag,
// every function on the program's path is inlined away.
func TestNothingWithoutTheTag(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"Point", "Error", "Planted", "Offset", "Environment"} {
		if !strings.Contains(string(out), "off.go") || !strings.Contains(string(out), "can inline "+name+"\n") {
			t.Errorf("%s is not inlined:\n%s", name, out)
		}
	}
}
