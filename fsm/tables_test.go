package fsm

import (
	"reflect"
	"strings"
	"testing"
)

// TestTablesAreInterfaces holds that a View has no struct of a generic type of package
// store: each package that imports this one would compile all its methods again.
func TestTablesAreInterfaces(t *testing.T) {
	tables := 0
	var visit func(at string, typ reflect.Type)
	visit = func(at string, typ reflect.Type) {
		generic := strings.Contains(typ.Name(), "[") && strings.HasSuffix(typ.PkgPath(), "fsm/store")
		switch {
		case generic && typ.Kind() == reflect.Interface:
			tables++
		case generic:
			t.Errorf("%s is a %s", at, typ)
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				visit(at+"."+typ.Field(i).Name, typ.Field(i).Type)
			}
		}
	}
	visit("View", reflect.TypeFor[View]())
	if tables < 50 {
		t.Errorf("only %d tables were seen", tables)
	}
}

// TestPublishFreezesEveryTable holds that each table of a published view is another one
// than that of the state, which goes on changing.
func TestPublishFreezesEveryTable(t *testing.T) {
	s := newState()
	published := reflect.ValueOf(s.publish()).Elem()
	own := reflect.ValueOf(s.view).Elem()
	var compare func(at string, a, b reflect.Value)
	compare = func(at string, a, b reflect.Value) {
		typ := a.Type()
		switch {
		case typ.Kind() == reflect.Interface && strings.HasSuffix(typ.PkgPath(), "fsm/store"):
			if a.Elem().Pointer() == b.Elem().Pointer() {
				t.Errorf("%s is shared with readers", at)
			}
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				compare(at+"."+typ.Field(i).Name, a.Field(i), b.Field(i))
			}
		}
	}
	compare("View", own, published)
}
