// SPDX-License-Identifier: Apache-2.0

// Command filedeps counts, for each package of its arguments (patterns of `go list`), the Go files other than tests and
// the largest block of files that depend on each other. File A depends on file B if A uses an identifier that B
// declares: a function, type, variable, constant, method or field. A block is a strongly connected component of that
// graph (Tarjan 1972): nobody can understand or move one of its files without all the others.
//
// It prints a table. With -limits FILE it also fails where a package is above its limits, or below limits of its own,
// which must then be lowered: FILE may only shrink.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"golang.org/x/tools/go/packages"
	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/graph/topo"
)

func main() {
	limits := flag.String("limits", "", "fail where a package does not keep to its limits in this `file`")
	list := flag.Bool("list", false, "list the files of each package's largest block")
	flag.Parse()
	if err := run(*limits, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(limitsFile string, list bool, patterns []string) error {
	found, err := measure("", patterns)
	if err != nil {
		return err
	}
	if limitsFile == "" {
		return show(found, list)
	}
	limits, err := readLimits(limitsFile)
	if err != nil {
		return err
	}
	return limits.check(found)
}

// figures are the sizes of a package.
type figures struct {
	path  string
	files int
	// block are the names of the files of the largest block; one file where no two depend on each other.
	block []string
}

// measure loads the packages that match the patterns in directory dir, which is the working directory where it is
// empty, and counts their files and blocks, in the order of their paths.
func measure(dir string, patterns []string) ([]figures, error) {
	mode := packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, patterns...)
	if err != nil {
		return nil, err
	}
	var found []figures
	var errs []error
	for _, p := range loaded {
		for _, e := range p.Errors {
			errs = append(errs, fmt.Errorf("loading %s: %v", p.PkgPath, e))
		}
		if len(p.Syntax) > 0 {
			found = append(found, figures{path: p.PkgPath, files: len(p.Syntax), block: largestBlock(p)})
		}
	}
	slices.SortFunc(found, func(a, b figures) int { return cmp.Compare(a.path, b.path) })
	return found, errors.Join(errs...)
}

// largestBlock returns the names of the files in the largest strongly connected component of the package's files.
func largestBlock(p *packages.Package) []string {
	// Positions of generated code can name another file by a line directive, so files are told apart by token.File.
	nodes := map[*token.File]int64{}
	files := map[int64]string{}
	graph := simple.NewDirectedGraph()
	for i, syntax := range p.Syntax {
		file := p.Fset.File(syntax.Pos())
		nodes[file], files[int64(i)] = int64(i), filepath.Base(file.Name())
		graph.AddNode(simple.Node(i))
	}
	for identifier, used := range p.TypesInfo.Uses {
		if used.Pkg() != p.Types || !used.Pos().IsValid() {
			continue
		}
		from, to := nodes[p.Fset.File(identifier.Pos())], nodes[p.Fset.File(used.Pos())]
		if from != to {
			graph.SetEdge(graph.NewEdge(simple.Node(from), simple.Node(to)))
		}
	}
	var largest []string
	for _, component := range topo.TarjanSCC(graph) {
		if len(component) <= len(largest) {
			continue
		}
		largest = nil
		for _, node := range component {
			largest = append(largest, files[node.ID()])
		}
	}
	slices.Sort(largest)
	return largest
}

// show prints the table, the largest block first.
func show(found []figures, list bool) error {
	slices.SortStableFunc(found, func(a, b figures) int { return cmp.Compare(len(b.block), len(a.block)) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FILES\tBLOCK\tPACKAGE")
	for _, f := range found {
		fmt.Fprintf(w, "%d\t%d\t%s\n", f.files, len(f.block), f.path)
		if list {
			for _, name := range f.block {
				fmt.Fprintf(w, "\t\t  %s\n", name)
			}
		}
	}
	return w.Flush()
}

// check returns an error that names each package above its limits, each limit that can be lowered, and each limit of a
// package that does not exist.
func (l limits) check(found []figures) error {
	unknown := maps.Clone(l.own)
	var errs []error
	for _, f := range found {
		own, has := l.own[f.path]
		delete(unknown, f.path)
		allowed := l.others
		if has {
			allowed = own
		}
		if f.files > allowed.files {
			errs = append(errs, fmt.Errorf("%s has %d files, of at most %d: split the package", f.path, f.files,
				allowed.files))
		}
		if len(f.block) > allowed.block {
			errs = append(errs, fmt.Errorf("%s has %d files that depend on each other, of at most %d "+
				"(filedeps -list names them)", f.path, len(f.block), allowed.block))
		}
		if has && (f.files < own.files || len(f.block) < own.block) {
			errs = append(errs, fmt.Errorf("%s is below its limits, which may only shrink: write %q into %s",
				f.path, fmt.Sprint(f.files, " ", len(f.block), " ", f.path), l.file))
		}
	}
	for path := range unknown {
		errs = append(errs, fmt.Errorf("%s: there is no package %s among those that were counted", l.file, path))
	}
	return errors.Join(errs...)
}
