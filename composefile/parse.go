package composefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/compose-spec/compose-go/v2/interpolation"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/distribution/reference"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/sirupsen/logrus"
)

// Limits of a file.
const (
	MaxBytes    = 256 << 10
	MaxServices = 64
	MaxVolumes  = 16
	MaxInternal = 8 // Internal networks.
	maxFaults   = 50
	maxScale    = 64 // Containers of all services together.
	maxGPUs     = 64 // GPUs of one container.
	maxAliases  = 2_000
	maxNodes    = 20_000  // YAML nodes, with those that aliases repeat.
	maxExpanded = 4 << 20 // Bytes of all texts and of the values of variables, each time that they are named.
)

// Parse reads a Compose file, in which ${NAME} stands for the variables of env. It
// returns the faults of a file that is refused, the first ones if there are many.
func Parse(text string, env map[string]string) (*File, []Fault) {
	p := &reader{}
	if len(text) > MaxBytes {
		return nil, []Fault{{Why: fmt.Sprintf("a Compose file has at most %d bytes", MaxBytes)}}
	}
	root := p.syntax(text)
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	p.root(root)
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	project, err := load(text, env)
	if err != nil {
		return nil, []Fault{p.locate(root, err)}
	}
	f := p.file(root, project)
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return f, nil
}

// load has Docker Compose's library read and check the file.
func load(text string, env map[string]string) (project *types.Project, err error) {
	quiet()
	defer func() {
		if cause := recover(); cause != nil {
			project, err = nil, fmt.Errorf("the file cannot be read: %v", cause)
		}
	}()
	x := &expansion{left: maxExpanded}
	project, err = loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir: "/", Environment: env,
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(text)}},
	}, func(o *loader.Options) {
		o.SetProjectName("berth", true)
		o.SkipInclude, o.SkipExtends, o.SkipResolveLabels, o.ResolvePaths = true, true, true, false
		o.SkipResolveEnvironment = true // Nothing opens the files that env_file names.
		o.MaxNodeVisits = maxNodes
		o.Profiles = nil
		x.limit(o.Interpolate)
	})
	if x.left < 0 {
		return nil, x.fault(err)
	}
	return project, err
}

// expansion is what the variables of a file make of it, which is limited: a file that names a
// long value often is much longer with it.
type expansion struct{ left int }

// errExpanded refuses the text of a file that goes beyond the limit.
var errExpanded = fmt.Errorf("with the values of its variables the file has more than %d bytes", maxExpanded)

// limit has the library take no value and make no text beyond the limit.
func (x *expansion) limit(o *interpolation.Options) {
	lookup, substitute := o.LookupValue, o.Substitute
	if substitute == nil {
		substitute = template.Substitute
	}
	o.LookupValue = func(name string) (string, bool) {
		value, ok := lookup(name)
		if x.left -= len(value); x.left < 0 {
			return "", ok
		}
		return value, ok
	}
	o.Substitute = func(text string, values template.Mapping) (string, error) {
		if x.left < 0 {
			return "", nil // The file is refused already, for another text.
		}
		out, err := substitute(text, values)
		if x.left -= len(out); x.left < 0 {
			return "", errExpanded
		}
		return out, err
	}
}

// fault returns the error of the text that went beyond the limit, of all that the library found.
func (x *expansion) fault(err error) error {
	for line := range strings.Lines(fmt.Sprint(err)) {
		if strings.Contains(line, errExpanded.Error()) {
			return errors.New(strings.TrimSpace(line))
		}
	}
	return errExpanded
}

// quiet drops the warnings of Docker Compose's library, which it prints to the standard
// error of the process.
var quiet = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) }) //nolint:gochecknoglobals // Once in a process.

// reader walks over the nodes of a file.
type reader struct {
	faults  []Fault
	nodes   int
	depth   int // Aliases that were followed.
	anchors map[string]ast.Node
}

// fault records a fault at a node.
func (p *reader) fault(at ast.Node, path, format string, args ...any) {
	if len(p.faults) >= maxFaults {
		return
	}
	f := Fault{Path: path, Why: fmt.Sprintf(format, args...)}
	if at != nil && at.GetToken() != nil && at.GetToken().Position != nil {
		f.Line, f.Column = at.GetToken().Position.Line, at.GetToken().Position.Column
	}
	p.faults = append(p.faults, f)
}

// syntax returns the mapping that a file is.
func (p *reader) syntax(text string) *ast.MappingNode {
	parsed, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		p.faults = append(p.faults, syntaxFault(text, err))
		return nil
	}
	if len(parsed.Docs) != 1 || parsed.Docs[0].Body == nil {
		p.fault(nil, "", "a Compose file is one YAML document with services")
		return nil
	}
	p.anchors = make(map[string]ast.Node)
	ast.Walk(anchorsOf(p.anchors), parsed.Docs[0].Body)
	root, ok := p.mapping(parsed.Docs[0].Body)
	if !ok {
		p.fault(parsed.Docs[0].Body, "", "a Compose file is a mapping with services")
		return nil
	}
	return root
}

// syntaxFault returns a fault of YAML's syntax. A tab in front of a key is the usual one.
func syntaxFault(text string, err error) Fault {
	for n, line := range strings.Split(text, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if at := strings.IndexByte(indent, '\t'); at >= 0 {
			return Fault{Line: n + 1, Column: at + 1, Why: "YAML is indented with spaces, not with tabs"}
		}
	}
	f := Fault{Why: "not YAML: " + yaml.FormatError(err, false, false)}
	if e, ok := err.(yaml.Error); ok { //nolint:errorlint // The library wraps none.
		f.Why = "not YAML: " + e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			f.Line, f.Column = t.Position.Line, t.Position.Column
		}
	}
	return f
}

// mapping returns a node as a mapping. It follows anchors and aliases.
func (p *reader) mapping(node ast.Node) (*ast.MappingNode, bool) {
	switch n := node.(type) {
	case *ast.AliasNode:
		if p.depth++; p.depth > maxAliases {
			p.fault(n, "", "the file has more than %d aliases", maxAliases)
			return nil, false
		}
		return p.mapping(p.anchors[strings.TrimSpace(n.Value.String())])
	case *ast.MappingNode:
		return n, true
	case *ast.MappingValueNode:
		return &ast.MappingNode{BaseNode: n.BaseNode, Start: n.Start, Values: []*ast.MappingValueNode{n}}, true
	case *ast.AnchorNode:
		return p.mapping(n.Value)
	case *ast.TagNode:
		return p.mapping(n.Value)
	}
	return nil, false
}

// each calls fn with the keys and values of a mapping, and with those that it merges, at
// the place where it does.
func (p *reader) each(node ast.Node, path string, fn func(key string, at, value ast.Node)) {
	m, ok := p.mapping(node)
	if !ok {
		return
	}
	for _, v := range m.Values {
		key := v.Key.String()
		if s, ok := v.Key.(*ast.StringNode); ok {
			key = s.Value
		}
		if p.nodes++; p.nodes > maxNodes {
			p.fault(v, path, "the file has more than %d keys", maxNodes)
			return
		}
		if key != "<<" {
			fn(key, v.Key, v.Value)
			continue
		}
		merged := []ast.Node{v.Value}
		if list, ok := v.Value.(*ast.SequenceNode); ok {
			merged = list.Values
		}
		for _, one := range merged {
			p.each(one, path, func(key string, _, value ast.Node) { fn(key, v.Key, value) })
		}
	}
}

// anchorsOf collects the nodes that the anchors of a file name.
type anchorsOf map[string]ast.Node

// Visit implements ast.Visitor.
func (a anchorsOf) Visit(node ast.Node) ast.Visitor {
	if anchor, ok := node.(*ast.AnchorNode); ok {
		a[strings.TrimSpace(anchor.Name.String())] = anchor.Value
	}
	return a
}

// root checks the keys of the file as it was written.
func (p *reader) root(root *ast.MappingNode) {
	services := 0
	p.each(root, "", func(key string, at, value ast.Node) {
		switch {
		case key == "services":
			p.each(value, key, func(name string, at, value ast.Node) {
				if services++; services > MaxServices {
					if services == MaxServices+1 {
						p.fault(at, key, "a file has at most %d services", MaxServices)
					}
					return
				}
				p.service(value, key+"."+name)
			})
		case key == "volumes", key == "networks":
			p.each(value, key, func(name string, at, value ast.Node) { p.resource(value, key, key+"."+name) })
		case key == "version", key == "name", strings.HasPrefix(key, "x-"):
		case key == "include", key == "secrets", key == "configs":
			p.fault(at, key, "%s", whyFiles)
		case key == "models":
			p.fault(at, key, "%s", whyEngine)
		default:
			p.fault(at, key, "%s", whyUnknown)
		}
	})
}

// service checks the keys of a service.
func (p *reader) service(node ast.Node, path string) {
	ok, no := allowed(), refused()
	p.each(node, path, func(key string, at, value ast.Node) {
		where := path + "." + key
		switch {
		case no[key] != "":
			p.fault(at, where, "%s", no[key])
		case strings.HasPrefix(key, "x-"):
		case !ok[key]:
			p.fault(at, where, "%s", whyUnknown)
		case key == "healthcheck":
			p.keys(value, where, key)
		case key == "deploy":
			p.deploy(value, where)
		case key == "volumes":
			p.serviceVolumes(value, where)
		}
	})
}

// keys refuses the keys of a part that are not allowed.
func (p *reader) keys(node ast.Node, path, part string) {
	may := allowedIn()[part]
	p.each(node, path, func(key string, at, _ ast.Node) {
		if !slices.Contains(may, key) && !strings.HasPrefix(key, "x-") {
			p.fault(at, path+"."+key, "allowed here are %s", strings.Join(may, ", "))
		}
	})
}

// deploy checks the part of a service about its resources.
func (p *reader) deploy(node ast.Node, path string) {
	p.keys(node, path, "deploy")
	p.each(node, path, func(key string, _, value ast.Node) {
		if key != "resources" {
			return
		}
		path := path + "." + key
		p.keys(value, path, "deploy.resources")
		p.each(value, path, func(key string, _, value ast.Node) {
			path := path + "." + key
			p.keys(value, path, key)
			p.each(value, path, func(key string, _, value ast.Node) {
				list, ok := value.(*ast.SequenceNode)
				if key != "devices" || !ok {
					return
				}
				for _, device := range list.Values {
					p.keys(device, path+".devices", "device")
				}
			})
		})
	})
}

// serviceVolumes refuses volumes of a service that are directories of the machine.
func (p *reader) serviceVolumes(node ast.Node, path string) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return // Docker Compose's library says so.
	}
	for i, value := range list.Values {
		at := path + "." + strconv.Itoa(i)
		if s, ok := value.(*ast.StringNode); ok {
			source, _, found := strings.Cut(s.Value, ":")
			if found && (strings.ContainsAny(source, "/~\\$") || strings.HasPrefix(source, ".")) {
				p.fault(value, at, "%s: name a volume of the file", whyMachine)
			}
			continue
		}
		p.keys(value, at, "service volume")
		p.each(value, at, func(key string, keyAt, value ast.Node) {
			text := strings.Trim(value.String(), `"'`)
			if key == "type" && text != "volume" && text != "tmpfs" {
				p.fault(keyAt, at, "%s: a volume is of type volume or tmpfs", whyMachine)
			}
		})
	}
}

// resource checks a volume or a network of the file.
func (p *reader) resource(node ast.Node, kind, path string) {
	part := strings.TrimSuffix(kind, "s")
	p.each(node, path, func(key string, at, value ast.Node) {
		switch text := strings.Trim(value.String(), `"'`); {
		case key == "external" && text == "false":
		case key == "external":
			p.fault(at, path+"."+key, "it belongs to the machine: an execution has %s of its own", kind)
		case key == "driver" && text != "local" && text != "bridge":
			p.fault(at, path+"."+key, "%s", whyEngine)
		case !slices.Contains(allowedIn()[part], key) && !strings.HasPrefix(key, "x-"):
			p.fault(at, path+"."+key, "allowed here are %s", strings.Join(allowedIn()[part], ", "))
		}
	})
}

// locate returns an error of Docker Compose's library as a fault, at the service that it
// names if it names one.
func (p *reader) locate(root *ast.MappingNode, err error) Fault {
	text := strings.ReplaceAll(err.Error(), "compose.yaml", "the file")
	f := Fault{Why: text}
	if at := strings.Index(text, "line "); at >= 0 { // As the library's reader of YAML says it.
		if n, _ := fmt.Sscanf(text[at:], "line %d, column %d", &f.Line, &f.Column); n == 2 {
			if _, rest, found := strings.Cut(text[at:], ": "); found {
				f.Why = text[:at] + rest
			}
			return f
		}
		f.Line, f.Column = 0, 0
	}
	_, cycle, _ := strings.Cut(text, "dependency cycle detected: ")
	first, _, _ := strings.Cut(cycle, " -> ")
	p.each(root, "", func(key string, _, value ast.Node) {
		p.each(value, key, func(name string, at, _ ast.Node) {
			named := strings.Contains(text, strconv.Quote(name)) || strings.Contains(text, key+"."+name) ||
				name == first && key == "services"
			if f.Line == 0 && named && at.GetToken() != nil {
				f.Path, f.Line, f.Column = key+"."+name, at.GetToken().Position.Line, at.GetToken().Position.Column
			}
		})
	})
	return f
}

// nodeOf returns the node of a service, to say where it is.
func (p *reader) nodeOf(root *ast.MappingNode, service string) (found ast.Node) {
	p.each(root, "", func(key string, _, value ast.Node) {
		if key == "services" {
			p.each(value, key, func(name string, at, _ ast.Node) {
				if name == service {
					found = at
				}
			})
		}
	})
	return found
}

// file returns the file as the library read it, checked again: interpolation and merged
// mappings may have added settings that the text does not show.
func (p *reader) file(root *ast.MappingNode, project *types.Project) *File {
	f := &File{project: project}
	if len(project.Services) == 0 {
		p.fault(nil, "services", "a Compose file has at least one service")
		return nil
	}
	if len(project.Services) > MaxServices {
		p.fault(nil, "services", "a file has at most %d services", MaxServices)
		return nil
	}
	containers := 0
	for _, name := range project.ServiceNames() {
		s := project.Services[name]
		at, path := p.nodeOf(root, name), "services."+name
		if why := escapes(&s); why != "" {
			p.fault(at, path, "%s", why)
		}
		image, why := imageOf(&s)
		if why != "" {
			p.fault(at, path+".image", "%s", why)
		}
		gpus, why := gpusOf(&s)
		if why != "" {
			p.fault(at, path, "%s", why)
		}
		scale := s.GetScale()
		if gpus != 0 && scale > 1 {
			p.fault(at, path+".scale",
				"a service that reserves GPUs has one container, since all of a service get the same: write a service for each")
		}
		if containers += max(scale, 0); scale < 0 || scale > maxScale || containers > maxScale {
			p.fault(at, path+".scale", "the services have at most %d containers together", maxScale)
		}
		f.Services = append(f.Services, Service{Name: name, Image: image, GPUs: gpus, Scale: scale})
	}
	for name := range project.Volumes {
		f.Volumes = append(f.Volumes, name)
	}
	if f.Internal = internal(project); len(f.Internal) > MaxInternal {
		p.fault(nil, "networks", "a file has at most %d internal networks", MaxInternal)
	}
	slices.Sort(f.Volumes)
	if len(f.Volumes) > MaxVolumes {
		p.fault(nil, "volumes", "a file has at most %d volumes", MaxVolumes)
	}
	return f
}

// internal returns the networks of a file without a way out that services are on, sorted.
func internal(project *types.Project) (names []string) {
	for _, s := range project.Services {
		for name := range s.Networks {
			if project.Networks[name].Internal && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// imageOf returns the whole name of a service's image, or why it is invalid.
func imageOf(s *types.ServiceConfig) (image, why string) {
	if s.Image == "" {
		return "", "a service names its image"
	}
	named, err := reference.ParseNormalizedNamed(s.Image)
	if err != nil {
		return "", fmt.Sprintf("%q is not the name of an image", s.Image)
	}
	if OwnName(named) {
		return "", ErrOwnName.Error()
	}
	return reference.TagNameOnly(named).String(), ""
}

// gpusOf returns how many GPUs a service reserves, or why the reservation is invalid.
func gpusOf(s *types.ServiceConfig) (count int, why string) {
	requests := slices.Clone(s.Gpus)
	if s.Deploy != nil && s.Deploy.Resources.Reservations != nil {
		requests = append(requests, s.Deploy.Resources.Reservations.Devices...)
	}
	for _, r := range requests {
		switch {
		case !slices.Contains(r.Capabilities, "gpu") && len(r.Capabilities) > 0:
			return 0, "only devices of capability gpu can be reserved"
		case r.Driver != "" && r.Driver != "nvidia":
			return 0, fmt.Sprintf("the driver of devices is nvidia, not %q", r.Driver)
		case len(r.IDs) > 0:
			return 0, "device_ids are of one machine: reserve a count of GPUs"
		case r.Count == types.DeviceCount(-1):
			return AllGPUs, ""
		case r.Count < 0 || r.Count > maxGPUs:
			return 0, fmt.Sprintf("a service reserves at most %d GPUs", maxGPUs)
		}
		count += max(int(r.Count), 1)
	}
	if count > maxGPUs {
		return 0, fmt.Sprintf("a service reserves at most %d GPUs", maxGPUs)
	}
	return count, ""
}

// escapes returns which setting of a service would reach beyond the execution.
func escapes(s *types.ServiceConfig) string {
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeVolume && v.Type != types.VolumeTypeTmpfs {
			return "volumes: " + whyMachine + ": name a volume of the file"
		}
	}
	switch {
	case s.Privileged || len(s.CapAdd) > 0 || len(s.SecurityOpt) > 0 || len(s.Devices) > 0 || s.UserNSMode != "":
		return whyPrivilege
	case s.NetworkMode != "" || s.Pid != "" || s.Ipc != "" || s.Uts != "" || s.CgroupParent != "",
		len(s.VolumesFrom) > 0:
		return whyMachine
	case len(s.EnvFiles) > 0 || len(s.Secrets) > 0 || len(s.Configs) > 0 || s.Extends != nil || s.Build != nil:
		return whyFiles
	case len(s.Ports) > 0:
		return whyPorts
	case s.Provider != nil || len(s.Models) > 0 || s.Runtime != "":
		return whyEngine
	}
	return ""
}
