// SPDX-License-Identifier: Apache-2.0

package report

// koreanSubjects are notes on how what is weighed was set up.
var koreanSubjects = []phrase{
	{"DNAT by nftables (numgen inc, a map of servers); the kernel forwards both ways and tracks connections", "nftables의 DNAT(numgen inc, 서버의 map); 커널이 양방향으로 전달하고 연결을 추적함"},
	{"each change replaces the table in one transaction (nft -f), weights are shares of the numbers; tracked connections are left alone, so a server that is removed or drains keeps those that it has", "변경마다 표를 한 트랜잭션으로 바꿈(nft -f), 가중치는 번호의 몫; 추적된 연결은 그대로라 빠지거나 드레인하는 서버도 가진 연결을 유지함"},
	{"Envoy as a TCP proxy (UDP by its UDP proxy), round robin, a worker a thread, circuit breakers out of the way", "TCP 프록시 Envoy(UDP는 그 UDP 프록시), 라운드 로빈, 스레드당 워커 하나, 서킷 브레이커는 걸리지 않게 함"},
	{"nginx as an HTTP proxy, round robin, a worker a thread, connections to the servers kept open (keepalive, two a server and worker), no access log; else its own defaults", "HTTP 프록시 nginx, 라운드 로빈, 스레드당 워커 하나, 서버 연결을 유지함(keepalive, 서버와 워커당 둘), 접근 로그 없음; 그 밖에는 기본값"},
	{"LoxiLB in its default mode, round robin; the servers' way to the clients is through the balancer", "기본 모드의 LoxiLB, 라운드 로빈; 서버에서 클라이언트로 가는 길은 밸런서를 지남"},
	{"IPVS, direct routing, rr; the servers have the VIP and answer clients", "IPVS, 직접 라우팅, rr; 서버가 VIP를 갖고 클라이언트에 응답함"}, {"IPVS, masquerading, rr; the servers' way to the clients is through the balancer", "IPVS, 마스커레이딩, rr; 서버에서 클라이언트로 가는 길은 밸런서를 지남"}, {"IPVS, IPIP tunnels, rr; the servers unwrap (ipip), have the VIP and answer clients", "IPVS, IPIP 터널, rr; 서버가 터널을 풀고(ipip) VIP를 갖고 클라이언트에 응답함"},
	{"what became of its packets is not known: {}", "패킷이 어떻게 되었는지 알 수 없음: {1}"},
	{"congestion control was {}", "혼잡 제어는 {1}"}, {"latencies hold wrk's correction for requests it did not make, and so are too high", "지연에 wrk가 하지 않은 요청에 대한 보정이 들어 있어 너무 높음"},
}

// koreanObstacles are why trials could not be made, or are not valid, and what
// befell a run.
var koreanObstacles = []phrase{
	{"IPVS is not installed: this kernel has no module ip_vs. Run the suite on Debian's kernel with `--lab vm`, or on a kernel that has it", "IPVS가 없음: 이 커널에 ip_vs 모듈이 없음. `--lab vm`으로 Debian의 커널에서, 또는 그 모듈이 있는 커널에서 스위트를 실행할 것"},
	{"{} is not installed: run `make deps`, or install it from your distribution", "{1}: 설치되지 않음. `make deps`를 실행하거나 배포판에서 설치할 것"}, {"{} is not installed: install Docker's engine from your distribution (Debian: docker.io)", "{1}: 설치되지 않음. 배포판에서 Docker 엔진을 설치할 것(Debian: docker.io)"}, {"nginx's stream module is not installed: install it from your distribution (Debian: libnginx-mod-stream)", "nginx의 stream 모듈이 설치되지 않음. 배포판에서 설치할 것(Debian: libnginx-mod-stream)"},
	{"{n} workers: this machine has {n} cores, and nginx's workers are no use beyond them", "워커 {1}개: 이 기계의 코어는 {2}개이며 nginx의 워커는 그 이상 쓸모가 없음"}, {"{n} threads: this machine has {n} cores, and Envoy's workers are no use beyond them", "스레드 {1}개: 이 기계의 코어는 {2}개이며 Envoy의 워커는 그 이상 쓸모가 없음"},
	{"{n} connections at once: HAProxy needs two open files for each, and with the limit of {n} open files here it can carry {n}", "동시 연결 {1}개: HAProxy는 연결마다 열린 파일이 둘 필요하며 여기의 한도({2})로는 {3}개를 나를 수 있음"}, {"{n} connections at once: HAProxy needs five open files for two, and with the limit of {n} open files here it can carry {n}", "동시 연결 {1}개: HAProxy는 연결 둘에 열린 파일이 다섯 필요하며 여기의 한도({2})로는 {3}개를 나를 수 있음"},
	{"{n} connections at once: nginx needs two open files for each, and with the limit of {n} open files here a worker can carry {n}", "동시 연결 {1}개: nginx는 연결마다 열린 파일이 둘 필요하며 여기의 한도({2})로는 워커 하나가 {3}개를 나를 수 있음"}, {"{n} connections at once: Envoy needs two open files for each, and with the limit of {n} open files here it can carry {n}", "동시 연결 {1}개: Envoy는 연결마다 열린 파일이 둘 필요하며 여기의 한도({2})로는 {3}개를 나를 수 있음"},
	{"{n} connections at once: docker-proxy may need {n} open files for each, and with the limit of {n} open files here one can carry {n}", "동시 연결 {1}개: docker-proxy는 연결마다 열린 파일이 {2}개 필요할 수 있으며 여기의 한도({3})로는 하나가 {4}개를 나를 수 있음"},
	{"{n} connections per client: {} needs {n} open files, and a process may have {n} here", "클라이언트당 연결 {1}개: {2}에 열린 파일 {3}개가 필요하나 여기서 프로세스의 한도는 {4}개임"}, {"{n} connections per client: the client needs {n} open files, and a process may have {n} here", "클라이언트당 연결 {1}개: 클라이언트에 열린 파일 {2}개가 필요하나 여기서 프로세스의 한도는 {3}개임"},
	{"{n} connections per client: a client has {n} local ports here", "클라이언트당 연결 {1}개: 여기서 클라이언트의 로컬 포트는 {2}개임"}, {"{n} connections per client: ab can hold {n}", "클라이언트당 연결 {1}개: ab이 유지할 수 있는 것은 {2}개임"}, {"{n} streams per client: iperf3 can have {n}", "클라이언트당 스트림 {1}개: iperf3는 {2}개까지임"},
	{"{n} connections per web server: its {n} workers can hold {n} with the limit of {n} open files here", "웹 서버당 연결 {1}개: 여기의 열린 파일 한도({4})로는 워커 {2}개가 {3}개를 유지할 수 있음"}, {"pinned: a core for each client and each server are {n}, and this machine has {n}", "코어 고정: 클라이언트와 서버마다 코어 하나면 {1}개이나 이 기계의 코어는 {2}개임"},
	{"{n} after the last trial its clients' sockets were still open: {}", "지난 시행 {1} 뒤 클라이언트의 소켓이 아직 열려 있었음: {2}"}, {"{} after the last trial its clients' sockets were still open: {}", "지난 시행 {1} 뒤 클라이언트의 소켓이 아직 열려 있었음: {2}"}, {"{} later sockets were still open, and were destroyed: {}", "{1} 뒤에도 열려 있던 소켓을 없앰: {2}"}, {"sockets in TIME-WAIT of the last trial stayed: this kernel cannot destroy them", "지난 시행의 TIME-WAIT 소켓이 남음: 이 커널은 그것을 없앨 수 없음"},
	{"not one request was answered", "응답받은 요청이 하나도 없음"}, {"not one byte arrived", "한 바이트도 도착하지 않음"}, {"not valid: {}", "유효하지 않음: {1}"},
	{"{n} requests failed (connect {n}, receive {n}, length {n}, exceptions {n}, write {n}, answers other than 2xx {n})", "요청 {1}건 실패(연결 {2}, 수신 {3}, 길이 {4}, 예외 {5}, 쓰기 {6}, 2xx가 아닌 응답 {7})"}, {"{n} requests failed (connect {n}, read {n}, write {n}, answers other than 2xx and 3xx {n}, over {n} s {n})", "요청 {1}건 실패(연결 {2}, 읽기 {3}, 쓰기 {4}, 2xx와 3xx가 아닌 응답 {5}, {6}초 초과 {7})"}, {"the first answer had {n} bytes, but the file has {n}", "첫 응답은 {1}바이트이나 파일은 {2}바이트임"},
	{"{}, for its thread {} on {} used {n} of a core", "{1}, {3}의 스레드 {2}: 코어 사용 {4}"}, {"{}, for it used {n} of the {n} cores it may use", "{1}, 쓸 수 있는 코어 {3}개 중 {2}개를 씀"}, {"none, for every machine had time to spare", "없음, 모든 기계에 여유가 있음"},
	{"the laboratory was built anew after trial {n} of {n}, whose notes say why", "시행 {2}개 중 {1}번째 뒤에 실험실을 새로 만듦, 이유는 그 시행의 비고에 있음"}, {"the run was gone on with at {}, after {n} of its {n} trials", "시행 {3}개 중 {2}개 뒤 {1}에 실행을 이어 감"}, {"{}; the laboratory cannot be used any more, and the next trial has a new one", "{1}; 실험실을 더 쓸 수 없어 다음 시행은 새 실험실에서 함"},
	{"permission denied", "권한 없음"}, {"operation not permitted", "허용되지 않은 작업"}, {"invalid argument", "잘못된 값"}, {"no such file or directory", "파일 없음"}, {"the subject could not be started: {}", "대상을 시작할 수 없음: {1}"}, {"the subject came up, but does not serve: {}", "대상이 시작되었으나 서비스하지 않음: {1}"},
}
