// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"io/fs"
	"os"

	"github.com/jeoul/jeoul/internal/host/durable"
)

// stateFile is a file that keeps the overlays of operations, the verdicts of health checks, or the ejected backends.
type stateFile struct{ content *durable.Content }

// stateDescriptions describe the content of the files in messages about faults.
var stateDescriptions = map[string]string{
	kindOperations: "the drains and weights of backends",
	kindHealth:     "the verdicts of health checks",
	kindEjections:  "the ejected backends",
	kindDiscovered: "the discovered backends",
	kindDrained:    "the drain of this balancer",
}

// stateFile returns the file of a kind.
func (i instance) stateFile(kind string) stateFile {
	return stateFile{i.files.Content(stateDescriptions[kind], i.file(kind), kind, 0o600)}
}

func (n stateFile) Load() ([]byte, error) {
	data, err := n.content.Load(os.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save puts other content into the file, whole or not at all. Where there is none, no file is left. The daemon
// reports an error that wraps durable.ErrNotWritten in its status, and retries the write.
func (n stateFile) Save(data []byte) error {
	if len(data) == 0 {
		data = nil
	}
	return n.content.Save(data)
}
