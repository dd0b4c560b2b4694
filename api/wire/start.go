//nolint:lll // A field and its rules are one line.
package wire

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/compute"
	"berth/compute/requirements"
)

// Limits of a start body. Those that a tag can say are in the tags.
const (
	maxFileName    = 255 // Bytes, as file systems have it.
	maxImportFiles = 1000
	maxCallbackURL = 2048
	maxVariable    = 128<<10 - 1 // Bytes of NAME=value: the kernel's limit, less the NUL.
	maxVariables   = 1 << 20     // Bytes of all variables: half of the kernel's usual limit for them and the arguments.
)

// Start holds the fields that all start bodies have.
type Start struct {
	Name          string            `json:"name" maxlen:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]*$" doc:"A name for people; need not be unique."`
	ExecutionType *string           `json:"execution_type" pattern:"^[a-zA-Z0-9_.]+$" maxlen:"64" doc:"Hardware profile, as /machine-types lists them; cpu when absent, gpu.any with gpu_types. gpu.any accepts every GPU type: see gpu_types."`
	MachineType   *string           `json:"machine_type" pattern:"^[a-zA-Z0-9_.]+$" maxlen:"64" doc:"Synonym of execution_type."`
	MinVRAMGB     int               `json:"min_vram_gb" default:"0" min:"0" max:"1048576" doc:"Least memory of each GPU or share that it gets, in GiB, as the maker names it: a card of 24 GB counts as 24 though it reports less. A GPU selection tries only types with as much."`
	GPUTypes      []string          `json:"gpu_types" maxitems:"16" minlen:"1" maxlen:"64" doc:"GPU types of which it gets one, in any case: of those that are free the cheapest, at the price of that type. The hold is for the dearest. execution_type is then gpu.any, or gives the number, as in gpu.any.2x; a type that it names is one of them. A GPU selection tries these types, or every type that there is when absent."`
	MinCapability string            `json:"min_compute_capability" maxlen:"4" pattern:"^([0-9]{1,2}[.][0-9])?$" doc:"Least CUDA compute capability of its GPUs, as in 8.0. Among several GPU types, only those with as much are taken."`
	Timeout       int               `json:"timeout" min:"1" doc:"Time limit in seconds; 60 when absent, and at most 600, unless the operator set other limits."`
	FileName      string            `json:"file_name" maxlen:"255" doc:"Name of the code in tracebacks: one name, no path."`
	CallbackURLs  []string          `json:"user_callback_urls" maxitems:"10" minlen:"1" maxlen:"2048" doc:"https URLs to notify of the end."`
	MaxCredits    compute.Credits   `json:"max_credits" gt:"0" doc:"Ceiling on what it may cost, with at most six decimals."`
	Priority      int               `json:"priority" default:"50" min:"0" max:"100" doc:"Higher first; then age."`
	MaxRetries    int               `json:"max_retries" default:"0" min:"0" max:"10" doc:"Retries on another node after a system failure, such as a lost node; the failed attempt is free. Code that fails is never retried. With retries left it is ended after 15 s without contact and not after disconnect_grace, so that it may start elsewhere. Runs of a GPU selection have at least 2."`
	Env           map[string]string `json:"env" maxitems:"100" maxlen:"32768" secret:"true" doc:"Environment variables of the code. With its name, one has at most 131071 bytes; all together at most 1 MiB."`
	Tags          []string          `json:"tags" maxitems:"10" minlen:"1" maxlen:"64" doc:"Free words, kept with the record."`
	Preemptible   bool              `json:"preemptible" default:"false" doc:"It may be preempted by work of a higher priority: after a notice it gets SIGTERM, is queued again and restarts; the attempt is free unless the work is of the same organization. Not for GPU selections."`
	Network       string            `json:"network" default:"\"egress\"" enum:"egress,none" doc:"Network of the code: egress or none."`
	Space
	DisconnectGrace int `json:"disconnect_grace" default:"600" min:"0" max:"86400" doc:"Seconds that the execution keeps running while its node is partitioned."`
}

// Program is the program of a start body: exactly one of code, module, command
// and script.
type Program struct {
	Code     string   `json:"code" nonnull:"true" minlen:"1" maxlen:"1048576" secret:"true" doc:"Python source. Exactly one of code, module, command and script is given."`
	Module   string   `json:"module" maxlen:"255" pattern:"^[A-Za-z0-9_][A-Za-z0-9_.-]*$" doc:"Python module to execute in place of code, as python -m does: of the bundle or installed on the node."`
	Command  []string `json:"command" maxitems:"1000" maxlen:"131071" secret:"true" doc:"Program and arguments in place of code, without a shell; the program is found by PATH, or is a path from the work directory."`
	Script   string   `json:"script" minlen:"1" maxlen:"512" doc:"Path of a Python file of the bundle to execute in place of code."`
	Args     []string `json:"args" maxitems:"1000" maxlen:"131071" secret:"true" doc:"Arguments of code, module or script: sys.argv[1:]. Arguments have at most 262144 bytes together."`
	Stdin    string   `json:"stdin" maxlen:"1048576" secret:"true" doc:"Text of standard input; at most 1 MiB. Larger input belongs in a file of the bundle."`
	StdinRaw string   `json:"stdin_base64" maxlen:"1398104" secret:"true" doc:"The same in base64, for what is not UTF-8 text."`
	Bundle   string   `json:"bundle_id" maxlen:"36" doc:"An uploaded bundle, as POST /bundles makes it: its files are put into the work directory."`

	Input   []byte `json:"-"` // From stdin or stdin_base64; Check sets it.
	InImage bool   `json:"-"` // An image says what is executed, unless a command is given.
}

// PythonStart is the body of POST /execution/streaming/start.
type PythonStart struct {
	Start
	Program
	Mount

	NBCode       int      `json:"nbcode" default:"0" min:"0" max:"1000000" doc:"0 for a script; n for the n-th cell of a notebook: it has the globals of kernel_state, echoes the value of its last expression, and leaves its own globals."`
	Requirements string   `json:"requirements_content" maxlen:"1048576" doc:"Requirements in the format of pip: packages of the index that the operator configured, which are installed before the code starts. Lines with options, URLs, repositories, paths and editable packages are refused."`
	Environment  string   `json:"environment" maxlen:"63" doc:"A named environment that nodes have ready, as GET /environments lists them, in place of requirements_content. It is placed on a node that has it."`
	PriorImports []string `json:"prior_imports" maxitems:"1000" maxlen:"1000" doc:"Import statements that are executed before the code."`
	KernelState  string   `json:"kernel_state" maxlen:"4194304" secret:"true" doc:"kernel_state of the cell before, as GET /execution/{id} returned it; empty for the first cell."`
	Outputs      string   `json:"outputs_prefix" maxlen:"512" doc:"Folder of the stored files of the organization that gets a copy of the outputs when the execution ends, as in runs/7: outputs/a.csv becomes runs/7/a.csv. Runs of a GPU selection have a folder for each GPU type in it. A file that cannot be stored is named in warnings."`
	ImportFiles  string   `json:"import_files" maxlen:"8388608" secret:"true" doc:"JSON object: relative path to the text of a file put beside the code, or to storage://KEY for a stored one, at most 8 MiB together. At most 1000 files in 1000 directories; a path has at most 32 parts."`

	Files map[string]string `json:"-"` // ImportFiles, read by Check.
}

// SelectionStart is the body of POST /execution/gpu_selection/start.
type SelectionStart struct {
	PythonStart

	Objective       string `json:"objective" default:"\"balanced\"" enum:"balanced,fastest,cheapest" doc:"Objective of the recommendation."`
	Repeats         int    `json:"repeats" default:"1" min:"1" max:"5" doc:"Runs of each GPU type, one after the other. Further runs of a type that can no longer win are skipped."`
	DeadlineSeconds *int   `json:"deadline_seconds" min:"1" max:"604800" doc:"Seconds from the submit by which the answer is wanted: what has not started by then is reported as no_capacity, and once a type has completed what still runs is stopped. Without it a type waits for capacity for an hour, or for a minute once all others have ended."`
	EarlyStop       bool   `json:"early_stop" default:"true" doc:"Stop runs that can no longer win; false runs every type to its end."`
}

// Profile returns the hardware profile asked for.
func (s *Start) Profile() string {
	const anyGPU = "gpu." + compute.AnyGPU
	profile := "cpu"
	switch {
	case s.ExecutionType != nil:
		profile = *s.ExecutionType
	case s.MachineType != nil:
		profile = *s.MachineType
	case len(s.GPUTypes) > 0:
		return anyGPU
	}
	if strings.EqualFold(profile, "gpu") {
		return anyGPU
	}
	return profile
}

// Capability returns the compute capability asked for, in tenths; 0 for any.
func (s *Start) Capability() int {
	n, err := strconv.Atoi(strings.Replace(s.MinCapability, ".", "", 1))
	if err != nil {
		return 0
	}
	return n
}

// Accepted returns the GPU types asked for.
func (s *Start) Accepted() []compute.AcceptedType {
	var types []compute.AcceptedType
	for _, name := range s.GPUTypes {
		types = append(types, compute.AcceptedType{Type: name})
	}
	return types
}

// NamesProfile reports whether a hardware profile was asked for.
func (s *Start) NamesProfile() bool { return s.ExecutionType != nil || s.MachineType != nil }

// defaultTimeout is the time limit where the operator set none, in seconds.
const defaultTimeout = 60

// CheckTimeout holds the time limit against the cluster's own upper bound, and sets
// that of the cluster where none is asked for.
func (s *Start) CheckTimeout(standard, limit time.Duration, f *Faults) {
	if s.Timeout == 0 {
		s.Timeout = cmp.Or(int(standard/time.Second), defaultTimeout)
		if bound := int(limit / time.Second); bound > 0 {
			s.Timeout = min(s.Timeout, bound)
		}
	}
	if bound := int64(limit / time.Second); bound > 0 && int64(s.Timeout) > bound {
		f.AtMost(bound, "body", "timeout")
	}
}

// Check holds the rules that tags cannot say.
func (s *Start) Check(f *Faults) {
	if s.ExecutionType != nil && s.MachineType != nil &&
		!strings.EqualFold(*s.ExecutionType, *s.MachineType) {
		f.Value("execution_type and machine_type are synonyms and differ", "body", "machine_type")
	}
	if len(s.FileName) > maxFileName {
		f.Value("a file name has at most 255 bytes", "body", "file_name")
	}
	if strings.ContainsAny(s.FileName, "/\\") || s.FileName == "." || s.FileName == ".." {
		f.Value("a file name, not a path", "body", "file_name")
	}
	checkName(f, s.FileName, "body", "file_name")
	for i, text := range s.CallbackURLs {
		checkCallbackURL(f, text, i)
	}
	checkEnv(s.Env, f)
	s.check(f)
	for i, tag := range s.Tags {
		checkName(f, tag, "body", "tags", i)
	}
}

// checkEnv records what is wrong with the variables.
func checkEnv(env map[string]string, f *Faults) {
	total := 0
	for _, name := range sortedKeys(env) {
		size := len(name) + len("=") + len(env[name])
		total += size + 1
		switch {
		case !variableName(name):
			f.Value("a variable's name matches ^[A-Za-z_][A-Za-z0-9_]*$ and does not begin with BERTH_",
				"body", "env", name)
		case strings.ContainsRune(env[name], 0):
			f.Value("a variable's value has no NUL character", "body", "env", name)
		case size > maxVariable:
			f.Value(fmt.Sprintf("a variable has at most %d bytes with its name", maxVariable), "body", "env", name)
		}
	}
	if total > maxVariables {
		f.Value(fmt.Sprintf("the variables have at most %d bytes together, with their names", maxVariables), "body", "env")
	}
}

// variablePattern matches the names of variables.
var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variableName reports whether an execution may set the variable name.
func variableName(name string) bool {
	return variablePattern.MatchString(name) &&
		!strings.HasPrefix(strings.ToUpper(name), "BERTH_")
}

// hasUnprintable reports whether s has a character that no name has.
func hasUnprintable(s string) bool { return compute.HasUnprintable(s) }

// checkName records what is wrong with a name, or a word of the client's own, at loc; "" is none.
func checkName(f *Faults, name string, loc ...any) {
	if name == "" {
		return
	}
	if bad := compute.BadName(name); bad != "" {
		f.Value(bad, loc...)
	}
}

// checkCallbackURL records what is wrong with the callback URL at position i.
func checkCallbackURL(f *Faults, text string, i int) {
	loc := []any{"body", "user_callback_urls", i}
	u, err := url.Parse(text)
	switch {
	case text == "" || utf8.RuneCountInString(text) > maxCallbackURL: // Said already.
	case err != nil || u.Hostname() == "" || u.Opaque != "" || hasUnprintable(text):
		f.Add(Fault{
			Type: "url_parsing", Loc: loc, Msg: "Input should be a valid URL",
			Ctx: map[string]any{"error": "not an absolute URL with a host"},
		})
	case u.Scheme != "https":
		f.Add(Fault{
			Type: "url_scheme", Loc: loc, Msg: "URL scheme should be 'https'",
			Ctx: map[string]any{"expected_schemes": "'https'"},
		})
	case u.User != nil:
		f.Value("a callback URL has no user or password in front of the host", loc...)
	case strings.Contains(u.Host, "$"):
		f.Value("secrets may stand in the path or query of a callback URL, not in its host", loc...)
	default:
		_, err := compute.ExpandSecrets(text, func(string) (string, error) { return "", nil })
		if err != nil {
			f.Value("in a callback URL, "+err.Error(), loc...)
		}
	}
}

// Check holds the rules that tags cannot say, and reads the import files.
func (s *PythonStart) Check(f *Faults) {
	s.Start.Check(f)
	s.Program.Check(f)
	s.Mount.check(f, &s.Start)
	if len(s.PriorImports) > 0 && s.Code == "" {
		f.Value("prior_imports belong to code", "body", "prior_imports")
	}
	switch _, err := base64.StdEncoding.DecodeString(s.KernelState); {
	case s.NBCode > 0 && s.Code == "":
		f.Value("nbcode belongs to code", "body", "nbcode")
	case s.NBCode == 0 && s.KernelState != "":
		f.Value("kernel_state belongs to the cell of a notebook: nbcode is its number", "body", "kernel_state")
	case err != nil:
		f.Value("this is not a state that a cell left", "body", "kernel_state")
	}
	for _, fault := range requirements.Check(s.Requirements) {
		f.Value(fmt.Sprintf("line %d: %s", fault.Line, fault.Why), "body", "requirements_content")
	}
	if s.Environment != "" && strings.TrimSpace(s.Requirements) != "" {
		f.Value("give environment or requirements_content, not both", "body", "environment")
	}
	if s.Outputs = strings.Trim(s.Outputs, "/"); s.Outputs != "" {
		if bad := compute.BadOutputsPrefix(s.Outputs); bad != "" && len(s.Outputs) <= compute.MaxOutputsPrefix {
			f.Value("no files can be stored there: "+bad, "body", "outputs_prefix")
		}
	}
	if strings.TrimSpace(s.ImportFiles) != "" {
		s.Files = importFiles(s.ImportFiles, f)
		s.ImportFiles = "" // It may be large, and Files has it.
	}
}

// Check holds the rules that tags cannot say, and reads the input.
func (c *Program) Check(f *Faults) {
	given := 0
	for _, is := range []bool{c.Code != "", c.Module != "", len(c.Command) > 0, c.Script != ""} {
		if is {
			given++
		}
	}
	switch {
	case given == 0 && !c.InImage && !f.has("code", "module", "command", "script"):
		f.add(typeMissing, nil, []any{"body", "code"})
	case given > 1:
		f.Value("exactly one of code, module, command and script is given", "body", "code")
	case len(c.Command) > 0 && len(c.Args) > 0:
		f.Value("the arguments of a command are in command", "body", "args")
	case len(c.Command) > 0 && c.Command[0] == "":
		f.Value("the program of a command has a name", "body", "command", 0)
	}
	if c.Script != "" {
		if why := compute.BadPath(c.Script); why != "" {
			f.Value(why, "body", "script")
		}
		if c.Bundle == "" {
			f.Value("script names a file of a bundle: give bundle_id too", "body", "script")
		}
	}
	checkArguments(c.Command, f, "command")
	checkArguments(c.Args, f, "args")
	c.readInput(f)
}

// readInput sets Input.
func (c *Program) readInput(f *Faults) {
	c.Input = []byte(c.Stdin)
	if c.StdinRaw != "" {
		data, err := base64.StdEncoding.DecodeString(c.StdinRaw)
		if err != nil {
			f.Value("not base64", "body", "stdin_base64")
		}
		if c.Stdin != "" {
			f.Value("stdin and stdin_base64 exclude each other", "body", "stdin_base64")
		}
		c.Input = data
	}
	if len(c.Input) > compute.MaxStdin {
		f.Value(fmt.Sprintf("standard input has at most %d bytes: put more into a file of a bundle", compute.MaxStdin),
			"body", "stdin")
	}
	c.Stdin, c.StdinRaw = "", "" // They may be large, and Input has them.
}

// checkArguments records what is wrong with the arguments of a field.
func checkArguments(args []string, f *Faults, field string) {
	total := 0
	for i, arg := range args {
		total += len(arg) + 1
		switch {
		case strings.ContainsRune(arg, 0):
			f.Value("an argument has no NUL character", "body", field, i)
		case len(arg) > maxVariable:
			f.Value(fmt.Sprintf("an argument has at most %d bytes", maxVariable), "body", field, i)
		}
	}
	if total > compute.MaxArguments {
		f.Value(fmt.Sprintf("the arguments have at most %d bytes together", compute.MaxArguments), "body", field)
	}
}

// importFiles returns the files that text, a JSON object, holds by path.
func importFiles(text string, f *Faults) map[string]string {
	before := len(f.Detail)
	fields, ok := object([]byte(text), f, "body", "import_files")
	if !ok {
		return nil
	}
	if len(fields) > maxImportFiles {
		b := binder{limits: &limits{}, faults: f, parent: []any{"body"}, key: "import_files"}
		b.tooMany("Dictionary", maxImportFiles, len(fields))
		return nil
	}
	files, dirs := make(map[string]string, len(fields)), make(map[string]bool)
	for _, name := range sortedKeys(fields) {
		loc := []any{"body", "import_files", name}
		var content *string
		if err := json.Unmarshal(fields[name], &content); err != nil || content == nil {
			f.add(typeString, nil, loc)
			continue
		}
		if why := badPath(name, fields); why != "" {
			f.Value(why, loc...)
			continue
		}
		files[name] = *content
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	if len(dirs) > compute.MaxBundleDirs {
		f.Value(fmt.Sprintf("the files are in at most %d directories", compute.MaxBundleDirs), "body", "import_files")
	}
	if len(f.Detail) > before {
		return nil
	}
	return files
}

// badPath says why name cannot be the path of an import file beside the
// others, "" when it can.
func badPath(name string, others map[string]json.RawMessage) string {
	if why := compute.BadPath(name); why != "" {
		return why
	}
	if strings.Contains(name, `\`) {
		return "a path has no control characters and no backslash"
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := others[dir]; ok {
			return "a path goes through another file"
		}
	}
	return ""
}
