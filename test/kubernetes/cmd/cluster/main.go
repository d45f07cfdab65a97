// SPDX-License-Identifier: Apache-2.0

// Command cluster runs a Kubernetes cluster in network namespaces of this machine until it is interrupted:
//
//	go run -C test/kubernetes ./cmd/cluster --nodes 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"text/template"
	"time"

	"k8s.io/klog/v2"

	"github.com/jeoul/jeoul/test/kubernetes/cluster"
	"github.com/jeoul/jeoul/test/kubernetes/components"
)

func main() {
	components.Run()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run() error {
	var options cluster.Options
	flag.IntVar(&options.Nodes, "nodes", 3, "`number` of nodes")
	flag.IntVar(&options.Clients, "clients", 1, "`number` of clients")
	flag.StringVar(&options.ProxyMode, "proxy-mode", "iptables", "`mode` of kube-proxy: iptables or nftables")
	flag.DurationVar(&options.NodeGrace, "node-grace", 0,
		"`time` without a sign of life after which a node is not ready")
	flag.StringVar(&options.Dir, "dir", "", "`directory` for logs and files, which is kept; by default a temporary one")
	flag.Parse()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // that of the kubelets' clients
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	c, err := cluster.New(ctx, options)
	if err != nil {
		return err
	}
	err = show.Execute(os.Stdout, map[string]any{"Cluster": c, "Took": time.Since(began).Round(100 * time.Millisecond)})
	if err == nil {
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "cluster: removing the cluster")
	}
	return errors.Join(err, c.Close())
}

var show = template.Must(template.New("").Parse(`The cluster is ready after {{.Took}}.
{{with .Cluster}}
kubeconfig    {{.Kubeconfig}}
API server    {{.Server}}, reachable from the namespaces below
logs          {{.Lab.Dir}}/HOST/

HOST          NAMESPACE (ip netns exec NAMESPACE …)   ADDRESSES
balancer      {{.Lab.Balancer.Namespace}}  {{.Lab.Balancer.IPv4}}, {{.Lab.Balancer.IPv6}} on {{.Lab.Balancer.Interface}}
{{range .Lab.Clients}}{{.Name}}      {{.Namespace}}  {{.IPv4}}, {{.IPv6}} on {{.Interface}}
{{end}}control plane {{.Control.Namespace}}  {{.Control.IPv4}}, {{.Control.IPv6}}
{{range .Nodes}}{{.Name}}        {{.Host.Namespace}}  {{.Host.IPv4}}, {{.Host.IPv6}}; pods {{.Pods4}}, {{.Pods6}}
{{end}}
Free addresses for services: 198.18.0.100 to 198.18.0.199, 2001:2::100 to 2001:2::199
Image for pods: jeoul.io/pod-server (port 8080, HTTP and UDP)

Interrupt to remove all of it.
{{end}}`))
