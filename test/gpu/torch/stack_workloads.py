"""Five workloads on which the cost of call stacks is measured. Each function makes one ready and returns its step.

Everything lies on the device that is PyTorch's default while it is made. `small`: sizes for a machine without a GPU, where only the
script itself is tried."""


def attention(torch, heads, x, qkv, out):
    batch, length, width = x.shape
    q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in qkv(x).chunk(3, -1))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out(y.transpose(1, 2).reshape(batch, length, width))


def decoder(torch, layers, width, heads, vocabulary, length):
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + attention(torch, heads, self.first(x), self.qkv, self.out)
            return x + self.mlp(self.second(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.layers, self.norm = nn.ModuleList(Layer() for _ in range(layers)), nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return self.norm(x) @ self.tokens.weight.t()

    return Decoder()


def gpt2(torch, small=False):
    """GPT-2 XL."""
    layers, width, heads, vocabulary, length = (2, 64, 4, 128, 32) if small else (48, 1600, 25, 50304, 1024)
    model = decoder(torch, layers, width, heads, vocabulary, length).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(vocabulary, (4, length))

    def step():
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def resnet(torch, small=False):
    """ResNet-50 in channels-last."""
    nn, device = torch.nn, torch.get_default_device().type

    class Bottleneck(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
            )
            self.short = nn.Sequential(nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            return torch.relu(self.body(x) + self.short(x))

    blocks, before = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            blocks.append(Bottleneck(before, width, stride if index == 0 else 1))
            before = 4 * width
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch, side = (2, 32) if small else (96, 224)
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,))

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def bert(torch, small=False):
    """BERT base."""
    nn, device = torch.nn, torch.get_default_device().type
    width, vocabulary, batch, length = (48, 64, 2, 16) if small else (768, 30522, 16, 512)
    layer = nn.TransformerEncoderLayer(width, 12, 4 * width, activation="gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(vocabulary, width), body, nn.Linear(width, vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(vocabulary, (batch, length))

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(tokens).view(-1, vocabulary), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def mlp(torch, small=False):
    """Many small tensors: the CPU is the bottleneck, and every request costs."""
    nn = torch.nn
    parts = []
    for _ in range(4 if small else 60):
        parts += [nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()]
    model = nn.Sequential(*parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    x = torch.randn(32, 64)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def decode(torch, small=False):
    """Tokens one by one, with caches that grow by torch.cat. A step is 16 tokens."""
    nn, device = torch.nn, torch.get_default_device()
    width, heads, layers, length = (48, 12, 2, 4) if small else (768, 12, 12, 16)
    qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers)).bfloat16()
    mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers))
    mlps = mlps.bfloat16()

    def step():
        with torch.no_grad():
            caches = [None] * layers
            x = torch.randn(8, 1, width, device=device, dtype=torch.bfloat16)
            for _ in range(length):
                for index in range(layers):
                    q, k, v = (part.view(8, 1, heads, -1).transpose(1, 2) for part in qkv[index](x).chunk(3, -1))
                    if caches[index] is not None:
                        k, v = torch.cat((caches[index][0], k), 2), torch.cat((caches[index][1], v), 2)
                    caches[index] = (k, v)
                    y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
                    x = x + y.transpose(1, 2).reshape(8, 1, width)
                    x = x + mlps[index](x)

    return step


WORKLOADS = {"gpt2": gpt2, "resnet": resnet, "bert": bert, "mlp": mlp, "decode": decode}
