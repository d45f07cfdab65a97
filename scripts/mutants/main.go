// SPDX-License-Identifier: Apache-2.0

// Command mutants changes single expressions and calls of packages, like mistakes of a programmer, and names the
// changes that no test of their own package detects: mutants [-n N] [-seed SEED] PACKAGE...
//
// All mutants of a package are compiled into one binary of its tests, through an overlay of `go build`: no file of the
// tree changes. JEOUL_MUTANT selects the active mutant.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is a change of the bytes from to to of a file. In its code, @ stands for the mutant's number.
type mutant struct {
	file, in, function, operator, text, code string // in: the name of the package
	line, from, to                           int
}

func main() {
	n := flag.Int("n", 5, "mutants of each package")
	seed := flag.Uint64("seed", 1, "which ones")
	flag.Parse()
	out, err := exec.Command("go", append([]string{"list", "-f", "{{.Dir}}"}, flag.Args()...)...).Output()
	survived := 0
	for _, dir := range strings.Fields(string(out)) {
		all, failed := candidates(dir)
		if len(all) == 0 {
			err = errors.Join(err, failed)
			continue
		}
		lived, failedToo := try(dir, choose(all, *n, rand.New(rand.NewPCG(*seed, 0))))
		survived, err = survived+lived, errors.Join(err, failed, failedToo)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	fmt.Printf("%d survived\n", survived)
}

// candidates returns every mutant of the package in dir.
func candidates(dir string) (all []mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if !slices.ContainsFunc(paths, func(p string) bool { return strings.HasSuffix(p, "_test.go") }) {
		return nil, err
	}
	for _, path := range paths {
		source, failed := os.ReadFile(path)
		set := token.NewFileSet()
		file, failedToo := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err = errors.Join(err, failed, failedToo); err != nil {
			return nil, err
		}
		if strings.HasSuffix(path, "_test.go") || ast.IsGenerated(file) {
			continue
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
				code := func(n ast.Node) string { return string(source[n.Pos()-1 : n.End()-1]) }
				ast.Inspect(f.Body, func(n ast.Node) bool {
					if m, is := mutate(n, code); is {
						m.file, m.in, m.function = path, file.Name.Name, fmt.Sprint(path, f.Pos())
						m.line = set.Position(n.Pos()).Line
						m.from, m.to = int(n.Pos()-1), int(n.End()-1)
						m.text, _, _ = strings.Cut(code(n), "\n")
						all = append(all, m)
					}
					return true
				})
			}
		}
	}
	return all, err
}

var opposite = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND}

// spared matches calls without which a program logs less, or hangs.
var spared = regexp.MustCompile(`(^|\.)(Debug|Info|Warn|Error|R?Lock|R?Unlock|panic)$`)

// failure matches the first line of a test's failure.
var failure = regexp.MustCompile(`(--- FAIL|panic|fatal error): .*`)

// mutate returns the mutant of a node, if there is one; code returns a node's source.
func mutate(n ast.Node, code func(ast.Node) string) (m mutant, is bool) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		other, is := opposite[n.Op]
		m.operator = fmt.Sprintf("%s → %s", n.Op, other)
		m.code = fmt.Sprintf("func() bool { if mutantIs(@) { return %s %s %s }; return %s }()", code(n.X), other, code(n.Y),
			code(n))
		return m, is
	case *ast.UnaryExpr:
		m.operator, m.code = "dropped !", fmt.Sprintf("(%s != mutantIs(@))", code(n))
		return m, n.Op == token.NOT
	case *ast.ExprStmt:
		m.operator, m.code = "dropped call", fmt.Sprintf("if !mutantIs(@) { %s }", code(n))
		call, is := n.X.(*ast.CallExpr)
		return m, is && !spared.MatchString(code(call.Fun))
	}
	return m, false
}

// choose returns n mutants, one of each operator before a second one of any, and at most one of each function.
func choose(all []mutant, n int, random *rand.Rand) (chosen []mutant) {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	taken := map[string]int{}
	for most := 1; most <= n; most++ {
		for _, m := range all {
			if len(chosen) < n && taken[m.function] == 0 && taken[m.operator] < most {
				taken[m.function]++
				taken[m.operator]++
				chosen = append(chosen, m)
			}
		}
	}
	return chosen
}

// try runs the tests of the package in dir with each of the mutants, and returns how many survived.
func try(dir string, chosen []mutant) (survived int, err error) {
	temporary, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temporary)
	overlay, err := write(dir, temporary, chosen)
	if err != nil {
		return 0, err
	}
	binary := filepath.Join(temporary, "mutants.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, dir)
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("compile mutants of %s: %w\n%s", dir, err, out)
	}
	bound := 10 * time.Minute
	for i := range len(chosen) + 1 { // 0 is no mutant
		began := time.Now()
		test := exec.Command(binary, "-test.failfast", "-test.timeout="+bound.String())
		test.Dir, test.WaitDelay = dir, time.Second
		test.Env = append(os.Environ(), fmt.Sprintf("JEOUL_MUTANT=%d", i))
		out, err := test.CombinedOutput()
		if i == 0 {
			if bound = 3*time.Since(began) + time.Minute; err != nil {
				return 0, fmt.Errorf("tests of %s fail without a mutant: %w\n%s", dir, err, out)
			}
			continue
		}
		m, by := chosen[i-1], "SURVIVED"
		if err == nil {
			survived++
		} else {
			by = "killed by " + cmp.Or(string(failure.Find(out)), "the end of the process")
		}
		fmt.Printf("%s:%d: %s: %s: %s\n", m.file, m.line, m.operator, m.text, by)
	}
	return survived, nil
}

// write writes the files of dir that have mutants into another directory, and returns the overlay for `go build`.
func write(dir, to string, chosen []mutant) (overlay string, err error) {
	files, last := map[string][]byte{}, slices.Clone(chosen)
	slices.SortFunc(last, func(a, b mutant) int { return b.from - a.from })
	for _, m := range last {
		if files[m.file] == nil {
			if files[m.file], err = os.ReadFile(m.file); err != nil {
				return "", err
			}
		}
		code := strings.ReplaceAll(m.code, "@", fmt.Sprint(slices.Index(chosen, m)+1))
		files[m.file] = slices.Replace(files[m.file], m.from, m.to, []byte(code)...)
	}
	files[filepath.Join(dir, "mutants_overlay.go")] = fmt.Appendf(nil, "package %s\nimport (\"os\"; \"strconv\")\n"+
		"var mutantOn, _ = strconv.Atoi(os.Getenv(\"JEOUL_MUTANT\"))\nfunc mutantIs(n int) bool { return n == mutantOn }\n",
		chosen[0].in)
	replace := map[string]string{}
	for path, source := range files {
		replace[path] = filepath.Join(to, filepath.Base(path))
		err = errors.Join(err, os.WriteFile(replace[path], source, 0o666))
	}
	data, failed := json.Marshal(map[string]any{"Replace": replace})
	overlay = filepath.Join(to, "overlay.json")
	return overlay, errors.Join(err, failed, os.WriteFile(overlay, data, 0o666))
}
