package submission

import (
	"bytes"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// storedScheme begins the text of an import file that stands for a stored one.
const storedScheme = "storage://"

// maxStoredImports is how many bytes all stored files of a start have together: they
// are copied into its bundle.
const maxStoredImports = 8 << 20

// storedImports reads the stored files that a start imports, as they are now, and takes
// them out of the files that are text.
func storedImports(c *handler.Core, r *edge.Request, in *wire.PythonStart) (map[string][]byte, error) {
	var out map[string][]byte
	total := int64(0)
	for name, text := range in.Files {
		key, is := strings.CutPrefix(text, storedScheme)
		if !is {
			continue
		}
		if err := r.Caller.Allows(compute.ScopeStorage); err != nil {
			return nil, err
		}
		b := r.View.Bucket(r.Caller.Actor.Org)
		o, ok := r.View.Object(r.Caller.Actor.Org, key)
		if b == nil || !ok {
			return nil, handler.BadKey("there is no stored file with this key", "body", "import_files", name)
		}
		if total += o.Size; total > maxStoredImports {
			return nil, compute.Errorf(compute.CodeTooLarge,
				"Stored files that a start imports have at most %d bytes together: fetch larger ones in the code.",
				maxStoredImports).Named("imports_too_large")
		}
		var content bytes.Buffer
		if err := c.Config.Objects.Copy(r.Ctx, b, o, &content, 0, o.Size); err != nil {
			return nil, err
		}
		if out == nil {
			out = make(map[string][]byte)
		}
		out[name] = content.Bytes()
	}
	for name := range out {
		delete(in.Files, name)
	}
	return out, nil
}
